"""CPSched: the task with the longest path to the job's end first (Graphene section 2.2)."""

from am.plan.bounds.paths import tails, ties_of
from am.plan.list_schedule import Placement, by_key, in_order
from am.plan.registry import PlanRequest
from weft.dag import Dag, Machines
from weft.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """List schedule by the longest path, a task's own duration included."""
    dag, machines = request.dag, request.machines
    return plan_of_starts("critical_path", dag, *placement(dag, machines))


def placement(dag: Dag, machines: Machines) -> Placement:
    """The machine and start of each task; raises InputError where one fits on no machine."""
    ties = ties_of(dag)
    order = by_key(dag, machines, -(tails(ties, dag.duration_s) + dag.duration_s))
    return in_order(dag, machines, order, ties)
