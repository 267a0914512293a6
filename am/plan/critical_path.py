"""CPSched: the task with the longest path to the job's end first (Graphene section 2.2)."""

from am.plan.list_schedule import by_path
from am.plan.registry import PlanRequest
from weft.model.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """List schedule by the longest path, a task's own duration included."""
    return plan_of_starts("critical_path", request.dag, *by_path(request.dag, request.machines))
