"""The wire: generated stubs, messages to and from protobuf, channels, streams and servers."""

import os

# gRPC's own lines on stderr say nothing that our errors do not say better; it reads this once.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
