"""Recurring jobs use the schedule that was built before (Graphene section 7).

A job recurs when its `history_key` does; its plan is used again only where the DAG, the machines
and the request are equal too, so that a reused plan is exactly the one that would be built.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from weft.model.dag import Dag, Machines
from weft.model.errors import InputError
from weft.model.json_types import Json, Options, Table
from weft.model.plan import Plan, pri_scores

# Raise this when planners come to answer differently, so that older plans are not taken.
PLANNERS_VERSION = 2


def plan_key(history_key: str, dag: Dag, machines: Machines, planner: str, options: Options) -> str:
    """Return the name under which a plan is kept: a digest of all that decides it.

    `options` holds whatever else the planner is given: its parameters, the seed, a time limit.
    """
    mixed = hashlib.sha256(f"{PLANNERS_VERSION}\0{history_key}\0{planner}\0".encode())
    mixed.update(repr(sorted((name, str(value)) for name, value in options.items())).encode())
    mixed.update(dag.digest().encode())
    mixed.update(np.ascontiguousarray(machines.capacity).tobytes())
    mixed.update(np.ascontiguousarray(machines.speeds).tobytes())
    return mixed.hexdigest()


def structure_key(
    history_key: str, dag: Dag, machines: Machines, planner: str, options: Options
) -> str:
    """Return the name under which a cluster keeps a recurring job's plan; "" for other jobs.

    Estimates are left out: they move a little with every run, and what a master takes from a plan
    is an order, which stays valid.
    """
    if not history_key:
        return ""
    mixed = hashlib.sha256(f"{history_key}\0{planner}\0{dag.resources}".encode())
    mixed.update(repr(sorted((name, str(value)) for name, value in options.items())).encode())
    mixed.update(np.ascontiguousarray(dag.first).tobytes())
    for edge in dag.edges:
        mixed.update(f"{edge.parent},{edge.child},{edge.link.value};".encode())
        if edge.pairs is not None:
            mixed.update(np.ascontiguousarray(edge.pairs).tobytes())
    mixed.update(np.ascontiguousarray(machines.capacity).tobytes())
    mixed.update(np.ascontiguousarray(machines.speeds).tobytes())
    return mixed.hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan on the shelf, with the `Dag.digest` of the estimates that it was made for."""

    plan: Plan
    digest: str

    @property
    def served(self) -> Plan:
        """The plan as a master gets it: no schedule was built for it."""
        return replace(self.plan, candidates=0)


class PlanShelf:
    """The plans of recurring jobs by `structure_key`; those unused for longest are dropped."""

    def __init__(self, plans_max: int = 1000) -> None:
        self._plans_max = plans_max
        # The least recently used come first.
        self._kept: dict[str, Kept] = {}

    def find(self, key: str) -> Kept | None:
        """Return the plan kept under a key; none under ""."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept[key] = kept
        return kept

    def keep(self, key: str, plan: Plan, digest: str) -> bool:
        """Put a plan on the shelf, unless a shorter one for equal estimates is there."""
        if not key:
            return False
        known = self.find(key)
        if known and known.digest == digest and known.plan.makespan_s <= plan.makespan_s:
            return False
        self._kept[key] = Kept(plan, digest)
        while len(self._kept) > self._plans_max:
            del self._kept[next(iter(self._kept))]
        return True


def plan_to_data(plan: Plan) -> Json:
    """Return a plan as plain data that `plan_from_data` reads back bit by bit."""
    return {
        "planner": plan.planner,
        "machine": plan.machine.tolist(),
        "start_s": plan.start_s.tolist(),
        "end_s": plan.end_s.tolist(),
        "order": plan.order.tolist(),
        "candidates": plan.candidates,
        "explain": dict(plan.explain),
    }


def plan_from_data(data: Table) -> Plan:
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
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError("plan", f"is not a kept plan: {error!r}") from None
    problem = fault_of(plan)
    if problem:
        raise InputError("plan", f"is not a kept plan: {problem}")
    return plan


def fault_of(plan: Plan) -> str:
    """Return what makes a plan unusable, whatever its job; "" where nothing does."""
    shapes = {
        each.shape for each in (plan.machine, plan.start_s, plan.end_s, plan.order, plan.pri_score)
    }
    if len(shapes) != 1 or plan.order.ndim != 1:
        return "its lists differ in length"
    if not (np.isfinite(plan.start_s).all() and np.isfinite(plan.end_s).all()):
        return "a time in it is no number"
    if not np.array_equal(np.sort(plan.order), np.arange(len(plan.order))):
        return "its order does not name every task once"
    return ""
