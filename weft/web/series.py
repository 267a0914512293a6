"""How full the cluster was over time: rings of samples, the older the coarser."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The wall clock time between samples.
SAMPLE_S = 2.0
Sample = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ring:
    """Every `every`-th sample, the newest `size` of them."""

    every: int
    size: int

    @property
    def span_s(self) -> float:
        """Span that it reaches back, s on the wall clock."""
        return self.every * self.size * SAMPLE_S


# They reach back 15 min, 4 h and 2 days.
RINGS = (Ring(1, 450), Ring(15, 480), Ring(150, 576))


class Series:
    """Samples in every ring; one that is older than a ring is in the next, coarser one."""

    def __init__(self) -> None:
        self._rings: tuple[deque[Sample], ...] = tuple(deque(maxlen=r.size) for r in RINGS)
        self._taken = 0
        # Pairs of ring and sample that are not in a file yet.
        self.unkept: list[tuple[int, Sample]] = []

    def add(self, sample: Sample) -> None:
        """Take the newest sample; its `now_s` is on the cluster's clock."""
        for number, ring in enumerate(RINGS):
            if self._taken % ring.every == 0:
                self._rings[number].append(sample)
                self.unkept.append((number, sample))
        self._taken += 1

    def put(self, ring: int, sample: Sample) -> None:
        """Take a sample back that a file kept."""
        if 0 <= ring < len(RINGS):
            self._rings[ring].append(sample)

    def samples(self, ring: int = 0) -> Sequence[Sample]:
        """Return a ring's samples, oldest first, and the newest of all at the end."""
        found = list(self._rings[min(max(ring, 0), len(RINGS) - 1)])
        newest = self.newest
        if newest is not None and (not found or found[-1] is not newest):
            found.append(newest)
        return found

    @property
    def newest(self) -> Sample | None:
        """The last sample, if there is any."""
        return self._rings[0][-1] if self._rings[0] else None

    def oldest_s(self) -> Iterator[tuple[int, float]]:
        """Yield for each ring the time of its oldest sample: what a file may forget is older."""
        for number, ring in enumerate(self._rings):
            if ring:
                yield number, ring[0]["now_s"]

    def clear(self) -> None:
        """Forget all."""
        for ring in self._rings:
            ring.clear()
        self.unkept.clear()
