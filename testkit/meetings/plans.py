"""What a planner says of its plan is true: nobody is shorter than what it proves."""

from collections.abc import Iterator

import numpy as np

from am.plan.registry import QUICK, PlanRequest, planned
from testkit.meetings.drawn import Meeting
from weft.model.dag import dag_of_job

PLANNED_TASKS_MAX = 60


def problems(meeting: Meeting) -> Iterator[str]:
    """Yield what the row's planner claims and another planner refutes."""
    name = meeting.row["planner"]
    if name in QUICK:
        return
    machines = meeting.cluster.machines()
    for job in meeting.jobs[:2]:
        if job.master is not None or job.task_count > PLANNED_TASKS_MAX:
            continue
        dag = dag_of_job(job, meeting.cluster.types)

        def plan(planner: str) -> tuple[float, dict[str, object]]:
            request = PlanRequest(dag, machines, np.random.default_rng(meeting.seed), {})  # noqa: B023
            made = planned(planner, request)
            return made.makespan_s, dict(made.explain)

        made_s, told = plan(name)
        best_s = min(plan(other)[0] for other in sorted(QUICK))
        if told.get("proven") and best_s < made_s * (1 - 1e-9):
            yield f"a plan is called the shortest and is not [{job.name}: {made_s:g}, {best_s:g}]"
