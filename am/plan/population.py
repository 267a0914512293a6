"""A population of schedules of one part that breed until they come no closer to the bound.

docs/rules.md, rule 70, and the bi-population search of Debels and Vanhoucke (2005) over the board:
several machines, every kind of edge. What is tried follows from the arguments alone, whatever the
number of cores.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from am.plan import evolve_kernels as kernels
from am.plan.board import grown, scratch_of, space_of
from am.plan.evolve_kernels import Brood, EvolutionWorkspace, Luck, Sorter
from am.plan.part_kernels import Ranks, longest
from am.plan.registry import PlanRequest
from am.plan.search import THREADED_TASKS_MIN, PreparedPart, Schedule
from weft.model.dag import Floats, Ints

_SIZE_MAX, _SIZE_MIN = 36, 8
# Insertions in all for each schedule of the first and of the last population.
_FIRST_POPULATION_INSERTIONS, _LAST_POPULATION_INSERTIONS = 36, 120
_STAGNANT_GENERATIONS_MAX = 12
# A crossover's window takes a share of the span between these two.
_CROSSOVER_WINDOW_SHARES = np.array([0.25, 0.75])
_NOISY_CHILDREN_SHARE = 0.08
# The noise deviates by these shares of the span, in turn.
_NOISE_DEVIATIONS = (0.05, 0.02, 0.1)
# The first keys deviate by this share of the longest path.
_FIRST_KEYS_DEVIATION = 0.4
# Beyond this many tasks none is moved alone, because equal ones are placed at once.
_SINGLE_MOVES_TASKS_MAX = 2000


def _empty_brood(rows: int, tasks: int) -> Brood:
    """Return room for so many schedules."""
    shape = (rows, tasks)
    return Brood(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(rows, np.int64))


def schedule_of(brood: Brood, row: int) -> Schedule:
    """Return one row, copied."""
    return Schedule(brood.start[row].copy(), brood.machine[row].copy(), int(brood.span[row]))


@dataclass(slots=True, eq=False)
class Inserter:
    """Serial insertion of many key vectors on as many cores as the request has."""

    prepared: PreparedPart
    request: PlanRequest
    done: int = 0
    _told: int = 0
    _spare: list[EvolutionWorkspace] = field(default_factory=list)

    def insert(self, keys: Ints, sign: int) -> Brood:
        """Return the schedules of `keys` (rows, n), larger first; `sign` -1 pushes to the right."""
        rows = len(keys)
        brood = _empty_brood(rows, self.prepared.dag.tasks)
        self.done += rows
        cores = self.request.workers if self.prepared.dag.tasks >= THREADED_TASKS_MIN else 1
        limits = np.linspace(0, rows, min(cores, rows) + 1).astype(np.int64)

        def fill(number: int) -> None:
            workspace = self._borrow()
            first, last = int(limits[number]), int(limits[number + 1])
            view = self.prepared.part if sign > 0 else self.prepared.back
            while first < last:
                first = kernels.insert_all(workspace, view, sign, first, last, keys, brood)
                if first < last:
                    workspace = workspace._replace(space=grown(workspace.space))
            self._spare.append(workspace)

        spread: Callable[..., Iterator[None]] = self.request.spread if cores > 1 else map
        for _ in spread(fill, range(len(limits) - 1)):
            pass
        return brood

    def taken(self) -> int:
        """Return the insertions since the last call."""
        since, self._told = self.done - self._told, self.done
        return since

    def _borrow(self) -> EvolutionWorkspace:
        try:
            return self._spare.pop()
        except IndexError:
            tasks = self.prepared.dag.tasks
            base = np.lexsort((self.prepared.kind, -self.prepared.dominant))
            spare = [np.zeros(tasks, np.int64) for _ in range(3)]
            return EvolutionWorkspace(
                space_of(self.prepared.room, 4 * tasks),
                scratch_of(self.prepared.part),
                Sorter(base, self.prepared.kind, spare[0], spare[1], np.zeros(tasks, np.int8)),
                Ranks(spare[2], np.zeros(tasks + 1, np.int64)),
            )


def evolve(
    inserter: Inserter, rng: np.random.Generator, first: Sequence[Ints], insertions: int
) -> Iterator[Schedule]:
    """Yield schedules as they are found, the shortest of each generation, over `insertions`.

    `first` are keys (n,), larger ones first, for up to half of the first generation; noise around
    the longest path to go fills it up. Every population but the first begins from noise alone.
    """
    prepared = inserter.prepared
    if prepared.dag.tasks == 0 or insertions < 1:
        return
    sizes = _Sizes(inserter.done, insertions)
    size = sizes.now(inserter)
    keys = _first_keys(prepared, rng, list(first)[: (size + 1) // 2], min(size, insertions))
    while True:
        yield from _population(inserter, rng, keys, sizes)
        size = sizes.now(inserter)
        if sizes.left(inserter) < size:
            return
        keys = _first_keys(prepared, rng, [], size)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How many schedules a population has: fewer as the insertions are used up.

    So a small number of insertions begins with many starts and ends with many generations of the
    best of them.
    """

    begun: int
    insertions: int

    def left(self, inserter: Inserter) -> int:
        """Return insertions that are left."""
        return self.begun + self.insertions - inserter.done

    def now(self, inserter: Inserter) -> int:
        """Return schedules that a population has now."""
        most, least = (
            min(max(self.insertions // each, _SIZE_MIN), _SIZE_MAX)
            for each in (_FIRST_POPULATION_INSERTIONS, _LAST_POPULATION_INSERTIONS)
        )
        return least + (most - least) * max(self.left(inserter), 0) // self.insertions


def _population(
    inserter: Inserter, rng: np.random.Generator, keys: Ints, sizes: _Sizes
) -> Iterator[Schedule]:
    """Yield what one population finds from its first keys until it stalls or the budget is used."""
    prepared = inserter.prepared
    tasks, size = prepared.dag.tasks, len(keys)
    parents = inserter.insert(keys, 1)
    best = int(parents.span.min())
    yield schedule_of(parents, int(parents.span.argmin()))
    sign, stalled, number = -1, 0, 0
    while stalled < _STAGNANT_GENERATIONS_MAX and sizes.left(inserter) >= 2 * size:
        keys = np.zeros((2 * size, tasks), np.int64)
        chance = rng.random((2 * size, kernels.CHANCES))
        noise = _noise(prepared, rng, parents, number, 2 * size)
        luck = Luck(chance, noise, _CROSSOVER_WINDOW_SHARES, _NOISY_CHILDREN_SHARE)
        kernels.cross(parents.start, parents.span, prepared.part.length, sign, luck, keys)
        children = inserter.insert(keys, sign)
        yield schedule_of(children, int(children.span.argmin()))
        pick = 2 * np.arange(size) + (children.span[1::2] < children.span[::2])
        size = min(size, sizes.now(inserter))
        pick = pick[np.sort(np.argsort(children.span[pick], kind="stable")[:size])]
        parents = Brood(children.start[pick], children.machine[pick], children.span[pick])
        stalled = 0 if children.span.min() < best else stalled + 1
        best = min(best, int(children.span.min()))
        sign, number = -sign, number + 1


def _first_keys(
    prepared: PreparedPart, rng: np.random.Generator, given: list[Ints], size: int
) -> Ints:
    """Return a first generation's keys, (rows, n): what is given, then noise around the paths."""
    path = np.empty(prepared.dag.tasks, np.int64)
    longest(prepared.back, path)
    rows = [*given]
    while len(rows) < size:
        groups = _groups(prepared, path, len(rows))
        shift = rng.normal(0.0, _FIRST_KEYS_DEVIATION * max(int(path.max()), 1), prepared.dag.tasks)
        rows.append(path + shift[groups].astype(np.int64))
    return np.array(rows)


def _noise(
    prepared: PreparedPart, rng: np.random.Generator, parents: Brood, number: int, rows: int
) -> Floats:
    """Return shifts in ticks, (rows, n): of whole stages, of tasks that start together, of each."""
    span = float(parents.span.min())
    noise = rng.normal(
        0.0, _NOISE_DEVIATIONS[number % len(_NOISE_DEVIATIONS)] * span, (rows, prepared.dag.tasks)
    )
    for row in range(rows):
        start = parents.start[(row // 2) % len(parents.start)]
        noise[row] = noise[row, _groups(prepared, start, row)]
    return noise


def _groups(prepared: PreparedPart, time: Ints, turn: int) -> Ints:
    """Return who moves together, as numbers below n, (n,): a stage, tasks of one time, or each."""
    dag = prepared.dag
    if dag.stages == dag.tasks or (turn % 3 == 2 and dag.tasks <= _SINGLE_MOVES_TASKS_MAX):
        return np.arange(dag.tasks)
    if turn % 3 == 0:
        return dag.stage_of
    code = np.lexsort((time, dag.stage_of))
    differs = (np.diff(dag.stage_of[code]) != 0) | (np.diff(time[code]) != 0)
    group = np.empty(dag.tasks, np.int64)
    group[code] = np.concatenate([[0], np.cumsum(differs)])
    return group
