"""A planner: a list schedule with the longest task first."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from am.plan.list_schedule import in_order
from am.plan.registry import PlanRequest
from weft.model.plan import Plan, plan_of_starts
from weft.policies.parameters import read_parameters


def _taken(shortest: bool = False) -> None:
    """Return the planner's parameters, with their defaults."""


def parameters(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the parameters; raises InputError for an unknown one."""
    return {"shortest": False} | read_parameters(_taken, options, "planner.longest_first")


def plan(request: PlanRequest) -> Plan:
    """Start the longest of the ready tasks first wherever it fits."""
    sign = -1.0 if parameters(request.options)["shortest"] else 1.0
    order = np.argsort(-sign * request.dag.duration_s, kind="stable")
    return plan_of_starts(
        "longest_first", request.dag, *in_order(request.dag, request.machines, order)
    )
