"""Recurring jobs use the schedule that was built before (Graphene section 7).

A job recurs when its `history_key` does; its plan is used again only where the DAG, the machines
and the request are equal too, so that a reused plan is exactly the one that would be built.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.dag import Dag, Machines
from weft.errors import InputError
from weft.plan import Plan, pri_scores


def plan_key(
    history_key: str, dag: Dag, machines: Machines, planner: str, options: Mapping[str, Any]
) -> str:
    """The name under which a plan is kept: a digest of all that decides it.

    `options` holds whatever else the planner is given: its parameters, the seed, a time limit.
    """
    mixed = hashlib.sha256(f"{history_key}\0{planner}\0".encode())
    mixed.update(repr(sorted((name, str(value)) for name, value in options.items())).encode())
    mixed.update(dag.digest().encode())
    mixed.update(np.ascontiguousarray(machines.capacity).tobytes())
    return mixed.hexdigest()


def plan_to_data(plan: Plan) -> dict[str, Any]:
    """A plan as plain data that `plan_from_data` reads back bit by bit."""
    return {
        "planner": plan.planner,
        "machine": plan.machine.tolist(),
        "start_s": plan.start_s.tolist(),
        "end_s": plan.end_s.tolist(),
        "order": plan.order.tolist(),
        "candidates": plan.candidates,
        "explain": dict(plan.explain),
    }


def plan_from_data(data: Mapping[str, Any]) -> Plan:
    """Read a kept plan; raises InputError where the data is no plan."""
    try:
        start_s = np.array(data["start_s"], dtype=np.float64)
        plan = Plan(
            planner=str(data["planner"]),
            machine=np.array(data["machine"], dtype=np.int64),
            start_s=start_s,
            end_s=np.array(data["end_s"], dtype=np.float64),
            order=np.array(data["order"], dtype=np.int64),
            pri_score=pri_scores(start_s),
            candidates=int(data["candidates"]),
            explain=dict(data["explain"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("plan", f"is not a kept plan: {error!r}") from None
    shapes = {len(plan.machine), len(plan.start_s), len(plan.end_s), len(plan.order)}
    if len(shapes) != 1:
        raise InputError("plan", "is not a kept plan: its lists differ in length")
    return plan
