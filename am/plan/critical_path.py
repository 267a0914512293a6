"""CPSched: the task with the longest path to the job's end first (Graphene section 2.2)."""

from am.plan.bounds.paths import tails, ties_of
from am.plan.list_schedule import by_key, in_order
from am.plan.registry import PlanRequest
from weft.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """List schedule by the longest path, a task's own duration included."""
    dag = request.dag
    ties = ties_of(dag)
    order = by_key(dag, request.machines, -(tails(ties, dag.duration_s) + dag.duration_s))
    machine, start_s = in_order(dag, request.machines, order, ties)
    return plan_of_starts("critical_path", dag, machine, start_s)
