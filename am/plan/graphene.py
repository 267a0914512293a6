"""Graphene's offline schedule constructor: troublesome tasks first (Graphene section 4).

Options: `am.plan.options.SearchOptions`. The default is the paper's search with the union of both
FragScores; every candidate of every part is tried unless one reaches the part's bound.
"""

from dataclasses import asdict

import numpy as np

from am.plan.options import read_options
from am.plan.registry import PlanRequest
from am.plan.search import PreparedPart, in_waves, parts_of, search
from weft.model.json_types import Arguments, Options
from weft.model.plan import Plan, plan_of_starts


def parameters(options: Options) -> Arguments:
    """Return every option with its value; raises InputError for an unknown or wrong one."""
    return asdict(read_options(options))


def plan(request: PlanRequest) -> Plan:
    """Return the most compact schedule found; raises InputError for bad options or large tasks."""
    options = read_options(request.options)
    grid, parts, dags = parts_of(request)
    start = np.zeros(request.dag.tasks, np.int64)
    machine = np.zeros(request.dag.tasks, np.int64)
    begin, tried, explain = 0, 0, []
    for tasks, dag in zip(parts, dags, strict=True):
        schedule = in_waves(dag, request.machines, grid)
        if schedule is None:
            schedule = search(PreparedPart.of(dag, request.machines, grid), request, options)
        start[tasks] = schedule.start + begin
        machine[tasks] = schedule.machine
        begin += schedule.span
        tried += schedule.candidates
        explain.append(schedule.explain)
    return plan_of_starts(
        "graphene",
        request.dag,
        machine,
        grid.seconds(start),
        candidates=tried,
        explain={"parts": explain},
    )
