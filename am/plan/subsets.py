"""Candidate sets of troublesome tasks and the four subsets each makes (Graphene figure 13).

docs/rules.md, rules 20 to 22: thresholds over distinct values, one candidate a closed set.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from am.plan.part_kernels import Part, T, divide
from weft.model.dag import Floats

Labels = NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A choice of troublesome tasks: `label` (n,) has T, S, P or C of each task.

    Seeds are tasks with LongScore >= `long` or FragScore <= `frag`; None is nobody on that axis.
    """

    label: Labels
    long: float | None
    frag: float | None
    variant: str

    @property
    def troublesome(self) -> int:
        """|T|."""
        return int(np.count_nonzero(self.label == T))


def divided(part: Part, back: Part, seeds: Labels) -> Labels:
    """Return T (the seeds closed), S, P and C as labels, (n,); `back` is the reversed part."""
    label = np.empty(len(part.links.stage), np.int8)
    divide(part, back, seeds, label)
    return label


def thresholds(scores: Floats, most: int) -> list[float]:
    """Return the distinct scores, ascending; at most `most`, evenly spaced by rank."""
    distinct = np.unique(np.round(scores, 12))
    if len(distinct) > most:
        ranks = np.rint(np.linspace(0, len(distinct) - 1, most)).astype(np.int64)
        distinct = distinct[ranks]
    return [float(x) for x in distinct]


def candidates(
    part: Part,
    back: Part,
    long: Floats,
    frags: Sequence[tuple[str, Floats]],
    most: int = 8,
) -> list[Candidate]:
    """Return the candidates in their fixed order: small sets first, each closed set once.

    `long` (n,) are LongScores; `frags` the FragScore variants by name, (n,) each.
    """
    found: dict[bytes, Candidate] = {}
    chosen: set[bytes] = set()
    tolerance = 1e-12
    for variant, frag in frags:
        lows: list[float | None] = [None, *thresholds(frag, most)]
        highs: list[float | None] = [None, *reversed(thresholds(long, most))]
        for low in lows:
            for high in highs:
                seeds = np.zeros(len(long), np.int8)
                if low is not None:
                    seeds |= frag <= low + tolerance
                if high is not None:
                    seeds |= long >= high - tolerance
                key = seeds.tobytes()
                if key in chosen or not seeds.any():
                    continue
                chosen.add(key)
                label = divided(part, back, seeds)
                closed = (label == T).tobytes()
                if closed not in found:
                    found[closed] = Candidate(label, high, low, variant)
    return list(found.values())
