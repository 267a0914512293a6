"""How fast this machine's interpreter is at what a simulation does, to compare figures of machines.

The loop is a bare simulator of its own: a heap of events, each of which makes a small object, looks
two names up and puts another event into the heap. A figure over this loop's, taken in the same
minute, says how much of the work is Weft's, whoever's machine it was.
"""

import time
from heapq import heapify, heappop, heappush

EVENTS, WAITING = 40_000, 2_000


class _Event:
    __slots__ = ("at_s", "kind", "number")

    def __init__(self, number: int, at_s: float, kind: str) -> None:
        self.number = number
        self.at_s = at_s
        self.kind = kind


def event_us() -> float:
    """Run the loop once; return the CPU time of one event, us."""
    counts = {"start": 0, "end": 0}
    heap = [(float(n * 7919 % WAITING), n) for n in range(WAITING)]
    heapify(heap)
    live = {n: _Event(n, at_s, "start") for at_s, n in heap}
    began_s = time.process_time()
    for number in range(WAITING, WAITING + EVENTS):
        at_s, first = heappop(heap)
        event = live.pop(first)
        counts[event.kind] += 1
        later = _Event(number, at_s + number % 97, "end" if event.kind == "start" else "start")
        live[number] = later
        heappush(heap, (later.at_s, number))
    return (time.process_time() - began_s) / EVENTS * 1e6
