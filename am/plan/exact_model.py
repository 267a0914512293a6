"""The constraint model of one DAG on given machines: whole ticks, optional intervals by machine."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from am.plan.list_schedule import Placement
from am.plan.paths import dependencies_of
from weft.model.dag import Dag, Floats, Ints, Machines
from weft.model.extras import require

_UNITS_PER_MACHINE = 1_000_000_000
# A full machine may hold so many units of rounding: 5e-8 of it, half of the tolerance.
_ROUNDING_UNITS = 50
# The solver adds up units times ticks of all machines in 64 bits.
_ENERGY_MAX = 1 << 58


@dataclass(frozen=True, slots=True)
class Answer:
    """What the solver found: no placement where it found none; `bound_s` is what it proved."""

    status: str
    proven: bool
    bound_s: float
    placement: Placement | None


class ExactModel:
    """One start per task, one machine of those it fits on, capacities as cumulative resources."""

    def __init__(self, dag: Dag, machines: Machines, least_s: float, hint: Placement) -> None:
        self._cp = cp_model = require("ortools.sat.python.cp_model", "optimal", "planner optimal")
        self._model: Any = cp_model.CpModel()
        self._dag, self._machines = dag, machines
        end_s = float((hint[1] + dag.duration_s).max())
        self._need, self._room = _whole_units(dag.demand, machines.capacity)
        ticks_max = _ENERGY_MAX // max(1, int(self._room.sum(axis=0).max(initial=0)))
        self._tick_s, self._ticks = _whole_ticks(dag.duration_s, end_s, ticks_max)
        # rounding each task up by at most a tick costs at most a tick for each on a chain
        self._horizon = math.ceil(end_s / self._tick_s) + dag.tasks
        self._start = [self._model.new_int_var(0, self._horizon, "") for _ in range(dag.tasks)]
        self._on: list[dict[int, Any]] = [{} for _ in range(dag.tasks)]
        self._add_machines()
        self._add_edges()
        self._add_makespan(math.floor(least_s / self._tick_s * (1 - 1e-9)))
        self._add_hint(hint)

    def solve(self, limit_s: float, effort: float, seed: int, workers: int) -> Answer:
        """Search for at most `limit_s` (and `effort` of deterministic time, if not 0)."""
        cp = self._cp
        solver: Any = cp.CpSolver()
        if limit_s <= 0:
            return Answer("no time", False, 0.0, None)
        if math.isfinite(limit_s):
            solver.parameters.max_time_in_seconds = limit_s
        if effort > 0:
            solver.parameters.max_deterministic_time = effort
        solver.parameters.random_seed = seed
        # interleaved searches take turns in a fixed order: as many cores, as many answers: one
        solver.parameters.interleave_search = True
        solver.parameters.num_workers = max(8, workers)
        status = solver.solve(self._model)
        if status not in (cp.OPTIMAL, cp.FEASIBLE):
            return Answer(str(solver.status_name(status)).lower(), False, 0.0, None)
        start = np.array([solver.value(var) for var in self._start], dtype=np.float64)
        machine = np.array(
            [next(j for j, on in row.items() if solver.value(on)) for row in self._on],
            dtype=np.int64,
        )
        bound_s = (solver.best_objective_bound - self._dag.tasks * self._rounded()) * self._tick_s
        return Answer(
            status="optimal" if status == cp.OPTIMAL else "feasible",
            proven=status == cp.OPTIMAL,
            bound_s=bound_s,
            placement=(machine, start * self._tick_s),
        )

    def _rounded(self) -> int:
        """Return 1 where durations were rounded up to ticks, 0 where ticks are exact."""
        exact = np.abs(self._ticks * self._tick_s - self._dag.duration_s)
        return int(exact.max(initial=0.0) > 1e-9 * self._tick_s)

    def _add_machines(self) -> None:
        dag, model = self._dag, self._model
        need, room = self._need, self._room
        alike = _equal_before(self._machines.capacity)
        held: list[list[tuple[Any, int]]] = [[] for _ in range(self._machines.count)]
        for task in range(dag.tasks):
            length = int(self._ticks[task])
            for j in range(self._machines.count):
                # Break symmetry: the first task to use one of several equal machines takes the
                # lowest free one.
                if np.any(need[task] > room[j]) or alike[j] > task:
                    continue
                on = model.new_bool_var("")
                self._on[task][j] = on
                if length > 0:
                    end = self._start[task] + length
                    held[j].append(
                        (
                            model.new_optional_interval_var(self._start[task], length, end, on, ""),
                            task,
                        )
                    )
            model.add_exactly_one(self._on[task].values())
        for j, rows in enumerate(held):
            for r in range(dag.demand.shape[1]):
                demands = [int(need[task, r]) for _, task in rows]
                if sum(demands) > room[j, r]:
                    model.add_cumulative([row[0] for row in rows], demands, int(room[j, r]))
        self._add_total()

    def _add_total(self) -> None:
        """Add all machines as one: redundant, but it lets the solver see the work."""
        need, room = self._need, self._room
        if self._machines.count == 1:
            return
        tasks = [task for task in range(self._dag.tasks) if self._ticks[task] > 0]
        spans = [
            self._model.new_fixed_size_interval_var(self._start[t], int(self._ticks[t]), "")
            for t in tasks
        ]
        for r in range(need.shape[1]):
            demands = [int(need[task, r]) for task in tasks]
            if sum(demands) > room[:, r].sum():
                self._model.add_cumulative(spans, demands, int(room[:, r].sum()))

    def _add_edges(self) -> None:
        model = self._model
        for dependency in dependencies_of(self._dag).dependencies:
            if dependency.pairs is not None:
                for parent, child in zip(
                    *(side.tolist() for side in dependency.pairs), strict=True
                ):
                    end = self._start[parent] + int(self._ticks[parent])
                    model.add(self._start[child] >= end)
                continue
            gate = model.new_int_var(0, self._horizon, "")
            for parent in self._dag.tasks_of(dependency.parent):
                model.add(gate >= self._start[parent] + int(self._ticks[parent]))
            for child in self._dag.tasks_of(dependency.child):
                model.add(self._start[child] >= gate)

    def _add_makespan(self, least: int) -> None:
        span = self._model.new_int_var(min(least, self._horizon), self._horizon, "")
        for task, start in enumerate(self._start):
            self._model.add(span >= start + int(self._ticks[task]))
        self._model.minimize(span)

    def _add_hint(self, hint: Placement) -> None:
        for task, start in enumerate(self._start):
            self._model.add_hint(start, round(float(hint[1][task]) / self._tick_s))


def _whole_ticks(duration_s: Floats, horizon_s: float, ticks_max: int) -> tuple[float, Ints]:
    """Return a tick and the durations in ticks, exact for decimal fractions, else rounded up.

    The horizon has at most `ticks_max` of them.
    """
    for digits in range(8):
        ticks = np.round(duration_s * 10**digits)
        close = np.abs(duration_s * 10**digits - ticks) <= 1e-9 * np.maximum(ticks, 1e-3)
        if not close.all():
            continue
        whole = ticks.astype(np.int64)
        common = max(int(np.gcd.reduce(whole)), 1)
        if horizon_s * 10**digits / common < ticks_max:
            return common * 10.0**-digits, whole // common
    tick_s = max(horizon_s, 1e-300) / min(1 << 30, ticks_max)
    return tick_s, np.ceil(duration_s / tick_s * (1 - 1e-12)).astype(np.int64)


def _whole_units(demand: Floats, capacity: Floats) -> tuple[Ints, Ints]:
    """Return demands and capacities in whole units of each resource.

    Exact and as few as possible for decimal fractions, else a billion to the largest machine.
    """
    need, room = np.zeros(demand.shape, np.int64), np.zeros(capacity.shape, np.int64)
    for r in range(demand.shape[1]):
        both = np.concatenate((demand[:, r], capacity[:, r]))
        whole = _decimal(both)
        if whole is None:
            most = capacity[:, r].max(initial=0.0)
            whole = np.round(both / (most if most > 0 else 1.0) * _UNITS_PER_MACHINE).astype(
                np.int64
            )
            whole[len(demand) :] += _ROUNDING_UNITS
        need[:, r], room[:, r] = whole[: len(demand)], whole[len(demand) :]
    return need, room


def _decimal(amounts: Floats) -> Ints | None:
    """Return amounts as multiples of their common unit, if they have few decimals."""
    for digits in range(9):
        scaled = amounts * 10.0**digits
        whole = np.round(scaled)
        if (np.abs(scaled - whole) <= 1e-9 * np.maximum(np.abs(whole), 1.0)).all():
            units = whole.astype(np.int64)
            return np.asarray(units // max(int(np.gcd.reduce(units)), 1))
    return None


def _equal_before(capacity: Floats) -> list[int]:
    """Return how many machines of equal capacity come before each one."""
    seen: dict[bytes, int] = {}
    before = []
    for row in capacity:
        key = row.tobytes()
        before.append(seen.get(key, 0))
        seen[key] = before[-1] + 1
    return before
