"""Load the compiled kernels before the first heartbeat: a tiny job on a throwaway manager."""

from typing import Any

import numpy as np

from rm.core import ResourceManager
from rm.match.candidates import limit_of
from rm.match.filter_kernels import fits
from rm.match.protocol import Matcher
from rm.match.registry import make_matcher
from rm.placing.allocation import match_all
from rm.placing.feasible import room_for
from rm.placing.reserve import look_again
from rm.settings import ManagerSettings
from weft.model.ids import attempt_id
from weft.model.job import Job, Stage
from weft.model.queues import DEFAULT_QUEUES
from weft.model.resources import ResourceTypes
from weft.protocol.effects import ClientRequested, Recovered, Send
from weft.protocol.messages import (
    Ask,
    AskType,
    AttemptRegistered,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    containers_of,
)
from weft.protocol.requests import SubmitApplication

_NODE, _TASKS = "warm", 3


def warm(matcher: Matcher, types: ResourceTypes) -> int:
    """Run a job of three tasks through a manager of its own; return how many were granted.

    Pass a throwaway `matcher`: its state is modified. Costs the loading of the kernels from
    the disk, or their compilation where nothing was kept.
    """
    if matcher.reserves:
        # It has no kernels of its own, and only whole containers.
        matcher = make_matcher("capacity")
    settings = ManagerSettings(recovery=False, master_demand={})
    rng = np.random.default_rng(0)
    manager = ResourceManager(0, types, DEFAULT_QUEUES, matcher, settings, rng)
    attempt = attempt_id(1, 1)
    stage = Stage("warm", _TASKS, 1.0, dict.fromkeys(types.names, 1.0))
    ask = Ask(1, _TASKS, (1.0,) * len(types), 1.0, 1.0, AskType.DEFAULT, 0)
    # Not all of them fit at once: the last resource lacks, the network, which may be overbooked.
    capacity = dict.fromkeys(types.names, _TASKS + 0.5) | {types.names[-1]: _TASKS - 0.5}
    granted: list[ContainersGranted] = []

    def tell(event: Any, now: float) -> None:
        """Hand in an event and keep the grants."""
        for effect in manager.handle(event, now):
            if isinstance(effect, Send) and isinstance(effect.message, ContainersGranted):
                granted.append(effect.message)

    tell(Recovered(), 0.0)
    tell(NodeRegistered(_NODE, "", "", (), capacity), 0.0)
    tell(ClientRequested("warm", SubmitApplication(Job("warm", (stage,)), "")), 0.0)
    tell(NodeHeartbeated(_NODE, 1), 1.0)
    tell(AttemptRegistered(attempt), 1.0)
    tell(ContainersAsked(attempt, 1, asks=(ask,), remaining_work=3.0), 1.0)
    books = manager.books
    entry = next(one for one in books.rows.entries if one)
    columns = books.ledger.nodes
    # Reservations and `explain` ask this.
    room_for(books, entry, columns.available)
    fits(entry.demand, columns.available[0].copy(), columns.capacity[0])
    # This is what happens in prompt pace.
    match_all(books)
    look_again(books)
    for beat in range(2, 2 + _TASKS):
        tell(NodeHeartbeated(_NODE, beat, ended=_ends(granted)), float(beat))
        # It weighs what lacks room, if it may overbook.
        matcher.match(books.view, 0, float(beat))
        tell(ContainersAsked(attempt, beat), float(beat))
    app = next(iter(books.apps.values()))
    # `explain` asks this.
    limit_of(books.view, app.slot, np.ones(len(types)))
    return sum(len(containers_of(answer.containers)) for answer in granted)


def _ends(granted: list[ContainersGranted]) -> tuple[ContainerEnd, ...]:
    return tuple(
        ContainerEnd(c.container_id, Outcome.SUCCEEDED, 0, 0, number, 0, 1.0)
        for number, c in enumerate(c for one in granted for c in containers_of(one.containers))
    )
