"""Random: one random key for each task (Graphene section 8.1)."""

from am.plan.list_schedule import in_order
from am.plan.registry import PlanRequest
from weft.model.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """List schedule in an order drawn from the request's generator."""
    order = request.rng.permutation(request.dag.tasks)
    machine, start_s = in_order(request.dag, request.machines, order)
    return plan_of_starts("random", request.dag, machine, start_s)
