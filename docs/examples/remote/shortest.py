"""A matcher in a process of its own: the application with the least work left goes first.

In this folder of Weft's sources, or in another one with the way to their `proto`:

    pip install grpcio grpcio-tools
    python -m grpc_tools.protoc -I ../../../proto --python_out=. --grpc_python_out=. matcher.proto
    python shortest.py 50100
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import matcher_pb2
import matcher_pb2_grpc


class Shortest(matcher_pb2_grpc.MatcherServicer):
    """Serves what is nearest to its end."""

    def Describe(self, setting, context):
        """Say who we are."""
        return matcher_pb2.MatcherDescription(name="shortest")

    def Match(self, question, context):
        """As many containers as they want, in order of what is left."""
        order = sorted(enumerate(question.candidate), key=lambda each: each[1].remaining)
        picks = [matcher_pb2.MatchPick(candidate=i, copies=c.pending) for i, c in order]
        return matcher_pb2.MatchAnswer(pick=picks)


server = grpc.server(ThreadPoolExecutor(1))
matcher_pb2_grpc.add_MatcherServicer_to_server(Shortest(), server)
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
print("serving", flush=True)
server.wait_for_termination()
