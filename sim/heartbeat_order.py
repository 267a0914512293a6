"""The order of heartbeats at one instant: before all else, nodes in the order of their start.

Then come nodes at whose beat something ends, and masters in the order of their attempts.
"""

from collections import deque

from sim.engine import Actor
from weft.protocol.messages import ContainersAsked, NodeHeartbeated

# The engine handles timers of a lower rank first.
NODES_FIRST, ENDS_NEXT, MASTERS_NEXT = -(1 << 62), -(3 << 60), -(1 << 61)
Ready = deque[tuple[Actor, object, int]]


def place_by_rank(ready: Ready, deferred: Actor, rank: int) -> int:
    """Return the place of a beat that is due now among what is still to be delivered.

    `deferred`: to whom the beats are addressed that wait for their turn. Beats are there in the
    order of their ranks. Looked for from the end: a round of grants most often owes one master
    after the other, and thousands may beat at one instant.
    """
    at, behind = len(ready), -1
    for target, event, _ in reversed(ready):
        at -= 1
        if target is deferred:
            beat = event.beat if isinstance(event, Actor) else None
            other = rank if beat is None else beat.rank
        elif isinstance(event, ContainersAsked):
            other = MASTERS_NEXT + event.attempt_id
        elif isinstance(event, NodeHeartbeated):
            other = NODES_FIRST
        else:
            continue
        if other <= rank:
            return at + 1 if behind < 0 else behind
        behind = at
    return max(behind, 0)
