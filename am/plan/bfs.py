"""Breadth first: Tez's order, by the longest hop count from a source (Graphene section 8.1)."""

from am.plan.list_schedule import by_level
from am.plan.registry import PlanRequest
from weft.model.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """List schedule by level, then in the order of the job's file."""
    return plan_of_starts("bfs", request.dag, *by_level(request.dag, request.machines))
