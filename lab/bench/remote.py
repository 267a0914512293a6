"""How many decisions a second does a matcher in a process of its own make? It is in Python here."""

import statistics
import subprocess
import sys
import time

from weft.wire.matching import MatcherChannel, Offer, Offers

CANDIDATES = 8
PATIENCE_S = 20.0


# an outsider's program: nothing of the laboratory knows gRPC
SERVICE = """
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from weft.wire.matcher_pb2 import MatchAnswer, MatcherDescription, MatchPick
from weft.wire.matcher_pb2_grpc import MatcherServicer, add_MatcherServicer_to_server

class Shortest(MatcherServicer):
    def Describe(self, setting, context):
        return MatcherDescription(name="shortest")

    def Match(self, question, context):
        order = sorted(enumerate(question.candidate), key=lambda each: each[1].remaining)
        return MatchAnswer(pick=[MatchPick(candidate=i, copies=c.pending) for i, c in order])

server = grpc.server(ThreadPoolExecutor(1))
add_MatcherServicer_to_server(Shortest(), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
"""


def measure(name: str, count: int) -> dict[str, object]:
    """Ask `count` times, one question after the other, as a manager does."""
    asks = [
        Offer(i, 0, 0, 0, [1.0, 2.0], 3, 1.0, 0.5, float(CANDIDATES - i), 1.0, 0.0, 1.0, 0)
        for i in range(CANDIDATES)
    ]
    offers = Offers(1.0, "n", [8.0, 8.0], [8.0, 8.0], [80.0, 80.0], asks)
    wanted = [(i, 3) for i in reversed(range(CANDIDATES))]
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        channel = MatcherChannel(f"127.0.0.1:{service.stdout.readline().strip()}", PATIENCE_S)
        channel.describe(["vcores", "memory_mb"], ["root"], PATIENCE_S)
        took_s = []
        for _ in range(count + count // 10):
            began_s = time.perf_counter()
            answer = channel.match(offers)
            took_s.append(time.perf_counter() - began_s)
            assert answer == wanted
        channel.close()
        service.stdin.close()
    # The first tenth warms up.
    kept = took_s[count // 10 :]
    return {
        "case": name,
        "tasks": count,
        "decisions_per_s": round(count / sum(kept)),
        "median_ms": round(statistics.median(kept) * 1e3, 3),
    }
