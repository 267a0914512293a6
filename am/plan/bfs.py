"""Breadth first: Tez's order, by the longest hop count from a source (Graphene section 8.1)."""

import numpy as np

from am.plan.bounds.paths import levels, ties_of
from am.plan.list_schedule import in_order
from am.plan.registry import PlanRequest
from weft.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """List schedule by level, then in the order of the job's file."""
    ties = ties_of(request.dag)
    order = np.argsort(levels(ties), kind="stable")
    machine, start_s = in_order(request.dag, request.machines, order, ties)
    return plan_of_starts("bfs", request.dag, machine, start_s)
