"""Tetris: the (task, machine) pair whose demand aligns best with what is free (Graphene 2.2)."""

from am.plan.list_schedule import best_packing
from am.plan.registry import PlanRequest
from weft.model.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """Start the pair with the largest dot product at every event until nothing fits."""
    machine, start_s = best_packing(request.dag, request.machines)
    return plan_of_starts("tetris", request.dag, machine, start_s)
