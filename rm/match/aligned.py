"""The best aligned tasks for a node: `tetris_kernels` with the arrays that it writes on."""

from functools import partial

import numpy as np

from rm.match.candidate_kernels import Candidates
from rm.match.candidates import collect
from rm.match.limit_kernels import Limits
from rm.match.score_kernels import Picks
from rm.match.tetris_kernels import Scratch, Tetris, tetris_picks
from weft.model.dag import Floats
from weft.policies.compiled import steady

_tetris_picks = steady(tetris_picks)


def best_aligned(
    found: Candidates, remaining: Floats, held: Floats, knobs: Tetris, limits: Limits
) -> Picks:
    """Return the candidates picked for one node; terms (n, 2): alignment, epsilon x work.

    `remaining` (applications,), `held` (applications, d) over C and the arrays of `found` and
    `limits` are working copies that change.
    """
    k, apps = len(found.rows), len(remaining)
    scratch = Scratch(np.empty(k), np.ones(k), np.empty(apps, np.bool_), np.empty(apps))
    return collect(partial(_tetris_picks.code, found, remaining, held, knobs, limits, scratch), 2)
