"""DAG shapes drawn to published marginals: how many stages, how deep, how wide, how many barriers.

Terms as in Carbyne (OSDI 2016), section 2.2: a barrier is a stage with several parents; the
critical path's length is counted in stages; disjoint paths are the fewest chains that hold every
stage once. Each marginal is log-normal through its published median and 95th percentile; the
marginals of one job rise and fall together (CORRELATION), as a DAG of many stages has more of all.
"""

from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np

CORRELATION = 0.95
# Of the DAGs with cycles, this fraction has one or two, and the others three and more.
_FEW_CYCLES = 1 / 6
_Z95 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class Marginal:
    """A log-normal distribution by its median and another percentile."""

    median: float
    high: float
    # It is the standard normal quantile of `high`, by default the 95th percentile.
    z_high: float = _Z95

    def at(self, z: float) -> int:
        """Return the value at a standard normal quantile, a whole number."""
        return round(self.median * exp(log(self.high / self.median) / self.z_high * z))


@dataclass(frozen=True, slots=True)
class ShapeLaw:
    """The marginals of a kind of workload."""

    stages: Marginal
    # It is the length of the critical path.
    path_stages: Marginal
    barriers: Marginal
    # The paths are disjoint.
    paths: Marginal
    # To this fraction of the DAGs no edges are added that close (undirected) cycles.
    tree_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The parents of each stage; the first `spine` stages are the longest path, in order."""

    parents: tuple[tuple[int, ...], ...]
    spine: int


def draw_shape(law: ShapeLaw, rng: np.random.Generator) -> Shape:
    """Draw a DAG to a law: a spine as long as the critical path, and side paths that join it.

    Side paths start as stages without parents, so the number of such stages is that of the
    disjoint paths. Where more barriers are wanted than side paths can make, later stages of the
    spine read from earlier ones too, as they do where cycles are wanted.
    """
    common, own = rng.standard_normal(), rng.standard_normal(4)
    z = CORRELATION * common + sqrt(1 - CORRELATION**2) * own
    length = max(1, law.path_stages.at(z[1]))
    rest = max(0, law.stages.at(z[0]) - length) if length > 1 else 0
    paths = min(max(1, law.paths.at(z[3])), rest + 1)
    sides = _side_lengths(rest, paths - 1, length, rng)
    barriers = min(law.barriers.at(z[2]), max(0, length - 1))
    if rng.random() < law.tree_share:
        if law.tree_share < 1:
            barriers = min(barriers, len(sides))
        return _build(length, sides, barriers, 0, rng)
    cycles = int(rng.integers(1, 3)) if rng.random() < _FEW_CYCLES else 2 + int(rng.geometric(0.3))
    return _build(length, sides, barriers, cycles, rng)


def _side_lengths(rest: int, count: int, spine: int, rng: np.random.Generator) -> list[int]:
    """Split the stages off the spine into side paths, each shorter than the spine."""
    if rest == 0:
        return []
    count = max(count, 1)
    lengths = [1] * count
    for _ in range(max(0, rest - count)):
        open_ones = [i for i, length in enumerate(lengths) if length < spine - 1]
        if not open_ones:
            lengths.append(1)
        else:
            lengths[open_ones[int(rng.integers(len(open_ones)))]] += 1
    return lengths


def _build(
    length: int, sides: list[int], barriers: int, cycles: int, rng: np.random.Generator
) -> Shape:
    parents: list[list[int]] = [[i - 1] if i else [] for i in range(length)]
    targets = _targets(length, sides, barriers, rng)
    for side, target in zip(sides, targets, strict=True):
        first = len(parents)
        for step in range(side):
            parents.append([first + step - 1] if step else [])
        parents[target].append(len(parents) - 1)
    missing = barriers - len(set(targets))
    free = [i for i in range(2, length) if len(parents[i]) == 1]
    rng.shuffle(free)
    for target in free[: max(0, missing)]:
        parents[target].append(int(rng.integers(target - 1)))
    _close_cycles(parents, length, cycles - max(0, missing), rng)
    return Shape(tuple(tuple(sorted(above)) for above in parents), length)


def _close_cycles(
    parents: list[list[int]], length: int, count: int, rng: np.random.Generator
) -> None:
    """Let stages of the spine that are barriers read from more of the spine before them."""
    free = [
        (target, source)
        for target in range(2, length)
        if len(parents[target]) > 1
        for source in range(target - 1)
        if source not in parents[target]
    ]
    rng.shuffle(free)
    for target, source in free[: max(0, count)]:
        parents[target].append(source)


def _targets(length: int, sides: list[int], barriers: int, rng: np.random.Generator) -> list[int]:
    """Return where side paths join the spine: late enough not to lengthen the longest path."""
    chosen: list[int] = []
    for side in sorted(sides, reverse=True):
        allowed = list(range(side, length))
        fresh = [i for i in allowed if i not in chosen]
        known = [i for i in allowed if i in chosen]
        pool = fresh if fresh and (len(set(chosen)) < barriers or not known) else known
        chosen.append(pool[int(rng.integers(len(pool)))])
    order = sorted(range(len(sides)), key=lambda i: -sides[i])
    answer = [0] * len(sides)
    for position, target in zip(order, chosen, strict=True):
        answer[position] = target
    return answer
