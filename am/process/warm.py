"""Load what a master needs before the first job comes: a tiny job on a throwaway master.

What is compiled or read from the disk inside the event loop makes every master of the process
silent meanwhile, for seconds where nothing was kept.
"""

from collections import Counter
from typing import Any

import numpy as np

from am.ask.registry import asker
from am.core import ASK, HEARTBEAT, ApplicationMaster
from am.process.planning import make_plan
from am.settings import MasterSettings
from weft.model.ids import attempt_id, container_id
from weft.model.job import Edge, Job, Stage
from weft.model.resources import ResourceTypes
from weft.policies.presets import Preset
from weft.protocol.effects import MakePlan, PlanReady, Send, Started, TimerFired
from weft.protocol.messages import (
    AttemptAccepted,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    Outcome,
    StartContainers,
    launches_of,
)

_ATTEMPT, _TASKS, _NODE = attempt_id(1, 1), 3, "warm"
# The master's own container has the number 1.
_FIRST_CONTAINER_NUMBER = 2


def small_job(types: ResourceTypes) -> Job:
    """Return a job of three stages, of which one waits for both others."""
    demand = dict.fromkeys(types.names, 1.0)
    stages = (
        Stage("a", _TASKS, 1.0, demand),
        Stage("b", _TASKS, 2.0, demand),
        Stage("c", _TASKS, 1.0, demand, (Edge("a"), Edge("b"))),
    )
    return Job("warm", stages)


def order_of(chosen: Preset, types: ResourceTypes) -> MakePlan:
    """Return the order for the small job's plan on two small machines."""
    machines = (((2.0,) * len(types), 2),)
    return MakePlan(
        chosen.planner, small_job(types), types, machines, 0, dict(chosen.planner_options)
    )


def warm(chosen: Preset, types: ResourceTypes, *, plan: bool) -> int:
    """Run the small job through a master of its own; return how many of its tasks were started.

    `plan`: the plan is made here as well, and not in a process of its own.
    """
    order = order_of(chosen, types)
    policy = asker(chosen.asker, chosen.asker_options)
    settings = MasterSettings(planner=chosen.planner, planner_options=chosen.planner_options)
    master = ApplicationMaster(_ATTEMPT, settings, policy, np.random.default_rng(0))
    share = tuple(4.0 for _ in types.names)
    said: list[Any] = []

    def tell(event: Any, now: float) -> None:
        """Hand in an event and keep what is sent, and the plan that is asked for."""
        for effect in master.handle(event, now):
            if isinstance(effect, Send):
                said.append(effect.message)
            elif isinstance(effect, MakePlan):
                tell(make_plan(order) if plan else PlanReady(None, "not here"), now)

    tell(Started(), 0.0)
    accepted = AttemptAccepted(
        _ATTEMPT, order.job, types, order.machines, share, (), 1.0, True, 0, 0
    )
    tell(accepted, 0.0)
    granted_by_ask: Counter[int] = Counter()
    ended = 0
    for turn in range(1, 3 * _TASKS + 1):
        totals = {ask.ask_id: ask.total for one in _of(said, ContainersAsked) for ask in one.asks}
        open_asks = [ask for ask, total in totals.items() if granted_by_ask[ask] < total][:2]
        first = _FIRST_CONTAINER_NUMBER + granted_by_ask.total()
        granted_by_ask.update(open_asks)
        held = tuple(
            Container(container_id(_ATTEMPT, first + place), _NODE, ask)
            for place, ask in enumerate(open_asks)
        )
        started = [
            launch
            for one in _of(said, StartContainers)
            for item in one.items
            for launch in launches_of(item)
        ]
        ends = tuple(
            ContainerEnd(
                one.container_id, Outcome.SUCCEEDED, 0, one.stage, one.task, one.attempt, 1.1
            )
            for one in started[ended : ended + 1]
        )
        ended += len(ends)
        told = ContainersGranted(
            _ATTEMPT, turn, containers=held, ended=ends, share=share, addresses=((_NODE, _NODE),)
        )
        tell(told, float(turn))
        tell(TimerFired(ASK), float(turn))
        tell(TimerFired(HEARTBEAT), turn + 0.5)
    # The small job's schedule does not need all that the policy loads.
    load = getattr(policy, "load", None)
    if load is not None:
        load()
    return sum(len(launches_of(i)) for one in _of(said, StartContainers) for i in one.items)


def _of(said: list[Any], kind: type) -> list[Any]:
    return [one for one in said if isinstance(one, kind)]
