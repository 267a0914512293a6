"""The wire: generated stubs, messages to and from protobuf, channels, streams and servers.

Only this folder, `weft.ha`, `weft.yarn` and the `process` folders know gRPC or protobuf. Start with
`services` (the servicers) and `codec` (the pairs of functions for each stream or call); `rules` is
the table of what a message may hold and `validator` refuses what breaks it.
"""

import os

# gRPC's own lines on stderr say nothing that our errors do not say better; it reads this once.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
