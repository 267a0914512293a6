"""The best aligned tasks for a node: `tetris_kernels` with the arrays that it writes on."""

import numpy as np

from rm.match.candidate_kernels import Candidates
from rm.match.limit_kernels import Gate
from rm.match.score_kernels import FEW
from rm.match.tetris_kernels import Scratch, Tetris, tetris_picks
from rm.match.turns import longer
from weft.compiled import steady
from weft.dag import Floats, Ints

_tetris_picks = steady(tetris_picks)


def best_aligned(
    found: Candidates, remaining: Floats, held: Floats, knobs: Tetris, gate: Gate
) -> tuple[Ints, Floats]:
    """Return (candidates picked (n,), terms (n, 2): alignment, epsilon x work) for one node.

    `remaining` (applications,), `held` (applications, d) over C and the arrays of `found` and
    `gate` are working copies that change.
    """
    k, apps = len(found.rows), len(remaining)
    scratch = Scratch(np.empty(k), np.ones(k), np.empty(apps, np.bool_), np.empty(apps))
    picked, terms = np.empty(FEW, np.int64), np.empty((FEW, 2))
    n = _tetris_picks(found, remaining, held, knobs, gate, scratch, picked, terms, 0)
    while n == len(picked):
        picked, terms = longer(picked), longer(terms)
        n = _tetris_picks(found, remaining, held, knobs, gate, scratch, picked, terms, n)
    return picked[:n], terms[:n]
