"""Breadth first: Tez's order, by the longest hop count from a source (Graphene section 8.1)."""

import numpy as np

from am.plan.bounds.paths import levels, ties_of
from am.plan.list_schedule import Placement, in_order
from am.plan.registry import PlanRequest
from weft.dag import Dag, Machines
from weft.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """List schedule by level, then in the order of the job's file."""
    return plan_of_starts("bfs", request.dag, *placement(request.dag, request.machines))


def placement(dag: Dag, machines: Machines) -> Placement:
    """The machine and start of each task; raises InputError where one fits on no machine."""
    ties = ties_of(dag)
    return in_order(dag, machines, np.argsort(levels(ties), kind="stable"), ties)
