"""The exact schedule by OR-Tools' CP-SAT, for small DAGs and for judging the other planners.

Needs the extra `weft-rm[optimal]`. `explain` says whether optimality is proven. Options:
`time_limit_s` (60), and `effort`: a limit in the solver's own deterministic time, under which equal
requests give equal plans however fast the machine is (0: none).
"""

import math

from am.plan.bounds.bounds import bounds_of
from am.plan.exact_model import ExactModel
from am.plan.list_schedule import Placement, by_key, in_order
from am.plan.paths import dependencies_of, tails
from am.plan.registry import PlanRequest
from weft.model.errors import InputError
from weft.model.json_types import Options, Table
from weft.model.plan import Plan, plan_of_starts

_OPTIONS = {"time_limit_s": 60.0, "effort": 0.0}
_TASK_MACHINE_PAIRS_MAX = 400_000


def parameters(options: Options) -> dict[str, float]:
    """Return every option with its value; raises InputError for an unknown or wrong one."""
    return _read(options)


def plan(request: PlanRequest) -> Plan:
    """Return the best schedule found in time; raises InputError: no OR-Tools or a large DAG."""
    options = _read(request.options)
    dag, machines = request.dag, request.machines
    if dag.tasks * machines.count > _TASK_MACHINE_PAIRS_MAX:
        raise InputError(
            "planner", f"optimal is for small DAGs: {dag.tasks} tasks x {machines.count} machines"
        )
    machine, start_s = _first_guess(request)
    bounds = bounds_of(dag, machines)
    makespan_s = float((start_s + dag.duration_s).max(initial=0.0))
    left_s = min(request.time_left_s(), options["time_limit_s"])
    proven = makespan_s <= bounds.strong_lb_s * (1 + 1e-9)
    least_s, status = bounds.strong_lb_s, "bound reached"
    if not proven:
        seed = int(request.rng.integers(1 << 30))
        model = ExactModel(dag, machines, bounds.strong_lb_s, (machine, start_s))
        answer = model.solve(left_s, options["effort"], seed, request.workers)
        status, least_s = answer.status, max(least_s, answer.bound_s)
        if answer.placement is not None:
            found = answer.placement
            if float((found[1] + dag.duration_s).max()) < makespan_s:
                machine, start_s = found
        makespan_s = float((start_s + dag.duration_s).max())
        proven = answer.proven or makespan_s <= least_s * (1 + 1e-9)
    bound_s = float(min(least_s, makespan_s))
    explain = {"proven": bool(proven), "status": status, "bound_s": bound_s}
    return plan_of_starts("optimal", dag, machine, start_s, explain=explain)


def _first_guess(request: PlanRequest) -> Placement:
    """Return the better of two list schedules, so that no time limit leaves a job planless."""
    dag, machines = request.dag, request.machines
    dependencies = dependencies_of(dag)
    keys = (tails(dependencies, dag.duration_s) + dag.duration_s, dag.duration_s)
    guesses = [in_order(dag, machines, by_key(dag, machines, -key), dependencies) for key in keys]
    return min(guesses, key=lambda guess: float((guess[1] + dag.duration_s).max(initial=0.0)))


def _read(given: Table) -> dict[str, float]:
    values = dict(_OPTIONS)
    for name, value in given.items():
        if name not in values:
            raise InputError(f"options.{name}", f"unknown option; known: {', '.join(values)}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not number >= 0:
            raise InputError(f"options.{name}", f"expected a number from 0, got {value!r}")
        values[name] = number
    return values
