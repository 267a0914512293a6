"""Covering arrays: few rows in which all values of any two (or three) dimensions meet."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

Row = tuple[int, ...]
_CANDIDATES_PER_ROW = 12


def covering(sizes: Sequence[int], strength: int, seed: int = 0) -> list[Row]:
    """Return rows of values, by position, in which every `strength` dimensions meet in every way.

    `sizes` has the number of values of each dimension. Row by row the one of a few that covers
    most of what is left (Cohen et al., "The AETG System", 1997): each begins with something that
    is not covered yet, so it ends, and sets the other dimensions one by one in a random order.
    """
    rng = np.random.default_rng(seed)
    left = {
        group: np.ones([sizes[d] for d in group], bool)
        for group in combinations(range(len(sizes)), strength)
    }
    rows: list[Row] = []
    while any(cells.any() for cells in left.values()):
        made = [_row(sizes, left, rng) for _ in range(_CANDIDATES_PER_ROW)]
        best = max(made, key=lambda row: sum(left[g][tuple(row[d] for d in g)] for g in left))
        for group, cells in left.items():
            cells[tuple(best[d] for d in group)] = False
        rows.append(best)
    return rows


def _row(
    sizes: Sequence[int], left: dict[tuple[int, ...], np.ndarray], rng: np.random.Generator
) -> Row:
    open_groups = [group for group, cells in left.items() if cells.any()]
    first = open_groups[int(rng.integers(len(open_groups)))]
    cells = np.argwhere(left[first])
    row = dict(zip(first, cells[int(rng.integers(len(cells)))].tolist(), strict=True))
    for dim in rng.permutation(len(sizes)).tolist():
        if dim not in row:
            row[dim] = _value(dim, row, sizes[dim], left, rng)
    return tuple(row[dim] for dim in range(len(sizes)))


def _value(
    dim: int,
    row: dict[int, int],
    size: int,
    left: dict[tuple[int, ...], np.ndarray],
    rng: np.random.Generator,
) -> int:
    """Return the value of a dimension that covers most with those that are set."""
    gain = rng.random(size) / 2
    strength = len(next(iter(left)))
    for others in combinations(sorted(row), strength - 1):
        group = tuple(sorted((*others, dim)))
        place = tuple(slice(None) if d == dim else row[d] for d in group)
        gain += left[group][place]
    return int(np.argmax(gain))
