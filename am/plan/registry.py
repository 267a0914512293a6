"""The planners by name: one file and one row here, or a plug-in (`weft.policies.plugins`)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Protocol, TypeVar

import numpy as np

from weft.model.dag import Dag, Machines
from weft.model.errors import InputError
from weft.model.json_types import Arguments, Options
from weft.model.plan import Plan
from weft.policies import plugins

Answer = TypeVar("Answer")


class Spread(Protocol):
    """Applies a function to each number and yields the answers in order; may use several cores."""

    def __call__(
        self, function: Callable[[int], Answer], numbers: Iterable[int], /
    ) -> Iterator[Answer]:
        """Return answers as `map` does; `ThreadPoolExecutor(n).map` fits, for unlocked kernels."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Everything that a planner may look at; time and chance come in as arguments.

    `time_left_s` answers how long the planner may still search (infinite without a limit);
    `progress` receives (done, total) candidates, `watch` the makespan of each better plan and the
    lower bound (0 where none is known), s; `workers` is the number of cores to use
    and `spread` how: the caller's thread pool, as planners start no threads.
    """

    dag: Dag
    machines: Machines
    rng: np.random.Generator
    options: Options
    time_left_s: Callable[[], float] = lambda: float("inf")
    progress: Callable[[int, int], None] = lambda done, total: None
    watch: Callable[[float, float], None] = lambda makespan_s, bound_s: None
    workers: int = 1
    spread: Spread = map


class Planner(Protocol):
    """Builds a valid plan for one job: same request and seed, same plan."""

    def __call__(self, request: PlanRequest) -> Plan:
        """Place every task; raises InputError where one fits on no machine."""


# name -> "module:function", imported on first use so that a command starts fast
PLANNERS: dict[str, str] = {
    "bfs": "am.plan.bfs:plan",
    "critical_path": "am.plan.critical_path:plan",
    "random": "am.plan.random:plan",
    "tetris": "am.plan.tetris:plan",
    "coffman_graham": "am.plan.coffman_graham:plan",
    "strip_part": "am.plan.strip_part:plan",
    "graphene": "am.plan.graphene:plan",
    "graphene_plus": "am.plan.graphene_plus:plan",
    "optimal": "am.plan.optimal:plan",
    "heft": "am.plan.heft:plan",
}
KNOW_SPEEDS = frozenset({"heft"})
# These take well under a second for thousands of tasks: a process or a shelf would cost more.
QUICK = frozenset({"bfs", "critical_path", "random", "tetris", "coffman_graham", "heft"})


def planner(name: str) -> Planner:
    """Look a planner up; raises InputError naming the known ones."""
    found: Planner
    if name in PLANNERS:
        module, function = PLANNERS[name].split(":")
        found = getattr(import_module(module), function)
        return found
    if not plugins.is_outside(plugins.PLANNERS, name):
        raise plugins.unknown(plugins.PLANNERS, name, PLANNERS)
    return plugins.guarded(plugins.PLANNERS, name, Plan)


SEARCH = frozenset({"graphene", "graphene_plus", "optimal"})
SIMPLER = ("heft", "bfs", "critical_path")
_PROOF = frozenset({"proven", "status", "bound_s"})


def planned(name: str, request: PlanRequest) -> Plan:
    """Build a plan; raises InputError for an unknown planner and as the planner does.

    On machines of unlike speeds, what a planner that knows none answers is timed anew: its tasks
    on its machines in its order, as they would run there. What it proved was of another problem, so
    it says nothing of that, and a planner that searches gives way to a simpler one whose plan is
    shorter there (`SIMPLER`).
    """
    build = planner(name)
    machines = request.machines
    if name in KNOW_SPEEDS or not machines.unlike:
        return build(request)
    found = build(replace(request, machines=Machines(machines.capacity)))
    timed: Callable[[Plan, Dag, Machines], Plan] = import_module("am.plan.heft").timed
    best = timed(found, request.dag, machines)
    for other in SIMPLER if name in SEARCH else ():
        plan = planned(other, replace(request, options={}))
        if plan.makespan_s < best.makespan_s:
            best = replace(plan, planner=best.planner, explain={**found.explain, "source": other})
    told = {key: value for key, value in best.explain.items() if key not in _PROOF}
    return replace(best, explain=told)


def planner_parameters(name: str, options: Options) -> Arguments:
    """Return every parameter of a planner with its value; raises InputError for an unknown one.

    A planner that takes parameters has a function `parameters(options)` in its module.
    """
    module = import_module(getattr(planner(name), "__module__", __name__))
    read: Callable[[Options], Options] | None
    read = getattr(module, "parameters", None)
    if read is not None:
        return dict(read(options))
    for key in options:
        raise InputError(f"planner.{key}", f"unknown parameter of {name}; known: none")
    return {}
