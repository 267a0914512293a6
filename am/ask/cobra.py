"""COBRA: Af decides how many reusable containers a job desires, Pdelay what runs in them.

Source: COBRA sections IV and VI-B; docs/rules.md, rules 49 to 57. It is semi-clairvoyant: it sees
the stages whose tasks may start (`HoldView`), nothing of later ones.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from am.ask.af import AfSettings, next_desire, request_of
from am.ask.holding import Filling, idle_containers, surplus, useless
from am.ask.view import HoldView, HoldWish
from weft.model.errors import InputError

# A task waits so long for its node while its duration is unknown (docs/rules.md, rule 57).
UNKNOWN_WAIT_S = 5.0


class _Seen(NamedTuple):
    """Use measured of a container when the period began."""

    total: tuple[float, ...]
    samples: int


class Cobra:
    """Af every `period_s` (L), Pdelay whenever a container has room.

    `container`: its capacity, named amounts or a part of the smallest machine. `surplus_release`:
    at once give back containers that the waiting tasks do not need, and desire no more than is kept
    (figure 2(c)); without it only a falling desire gives containers back, as they become empty.
    However large the desire, it asks for no more than one container for each task that waits, as
    Lemma 4 supposes; the paper's Af asks on while few tasks wait for their node (docs/cobra.md).
    `over_estimate`: the first tasks of a stage are taken to need so many times what is declared, at
    most a container; then what was measured counts (section VI-B). 0: always what is declared.
    """

    def __init__(
        self,
        container: Mapping[str, float] | float = 0.25,
        rho: float = 1.5,
        delta: float = 0.7,
        period_s: float = 5.0,
        tau: float = 0.5,
        initial_desire: float = 1.0,
        surplus_release: bool = False,
        over_estimate: float = 1.25,
    ) -> None:
        if not float(rho) > 1.0:
            raise InputError("asker.rho", f"expected a number above 1, got {rho!r}")
        if not 0.0 < float(delta) <= 1.0:
            raise InputError("asker.delta", f"expected a number in (0, 1], got {delta!r}")
        if not float(period_s) > 0.0:
            raise InputError("asker.period_s", f"expected a positive number, got {period_s!r}")
        if not float(over_estimate) >= 0.0:
            raise InputError("asker.over_estimate", f"expected 0 or more, got {over_estimate!r}")
        self.container = container
        self.over_estimate = float(over_estimate)
        self.desire = float(initial_desire)
        # Which case of the desire's feedback the last full period was.
        self.case = ""
        self._af = AfSettings(float(rho), float(delta))
        self._period_s = float(period_s)
        self._tau = float(tau)
        self._surplus = bool(surplus_release)
        # The current period has no end before the first call.
        self._ends_s: float = np.inf
        self._seen: dict[int, _Seen] = {}
        self._at_s = 0.0
        # Since `_at_s`, containers have used and held resources at these rates.
        self._rate: tuple[list[float], list[float]] | None = None
        # expected use and allocation over the period so far; empty: it just began
        self._used: list[float] = []
        self._held: list[float] = []

    def hold(self, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        """Fill containers; at a period's end, desire more or fewer; give back what is too much."""
        self._account(now)
        if self._ends_s == np.inf:
            self._ends_s = now + self._period_s
            # The desire of an earlier attempt is known from the containers that it left.
            self.desire = max(self.desire, float(len(view.containers)))
        while now >= self._ends_s - 1e-9:
            self._feed_back(view)
            self._ends_s += self._period_s
        filling = Filling(now, self._tau, self._af.delta, UNKNOWN_WAIT_S)
        filling.fill(view, view.containers)
        idle = idle_containers(view, filling.used)
        back = useless(view, idle)
        if self._surplus:
            spare = [c for c in surplus(view, filling) if c not in back]
            kept = len(view.containers) - len(back)
            back += spare[: max(0, kept - 1)]
            if spare:
                self.desire = min(self.desire, max(1.0, float(len(view.containers) - len(back))))
        target = request_of(self.desire)
        extra = len(view.containers) - len(back) - target
        back += [c.container_id for c in idle if c.container_id not in back][: max(0, extra)]
        busy = len(view.containers) - len(idle)
        needed = busy + sum(task.tasks for task in filling.left)
        target = min(target, max(1, needed, len(view.containers) - len(back)))
        self._observe(view)
        waits = [self._ends_s - now, *(d for d in (filling.wakes_in_s(),) if d is not None)]
        return HoldWish(target, filling.start, back, max(min(waits), 1e-6))

    def _feed_back(self, view: HoldView) -> None:
        """Adapt the desire at the end of a period (algorithm 1)."""
        self.desire, self.case = next_desire(
            self.desire,
            len(view.containers),
            self._utilisation(view),
            bool(view.waiting),
            self._af,
            view.pool_max,
        )
        self._seen = {c.container_id: _Seen(tuple(c.use_sum), c.use_count) for c in view.containers}
        self._used, self._held = [], []

    def _utilisation(self, view: HoldView) -> float:
        """Return used over allocated in the period, the largest of the resources; best measured."""
        used, held = [0.0] * len(view.size), [0.0] * len(view.size)
        unknown = _Seen((0.0,) * len(view.size), 0)
        before = [self._seen.get(c.container_id, unknown) for c in view.containers]
        counts = [
            c.use_count - seen.samples for c, seen in zip(view.containers, before, strict=True)
        ]
        most = max(counts, default=0)
        for c, seen, samples in zip(view.containers, before, counts, strict=True):
            # its node knows nothing of a container as long as nothing was started in it
            idle = samples == 0 and not c.busy and c.idle_since_s <= self._ends_s - self._period_s
            rows = zip(used, c.use_sum, seen.total, strict=True)
            used = [u + (now - then) for u, now, then in rows]
            times = most if idle else samples
            held = [h + s * times for h, s in zip(held, c.size, strict=True)]
        if not any(held) and self._used and self._held:
            used, held = self._used, self._held
        return max([u / h for u, h in zip(used, held, strict=True) if h > 0], default=0.0)

    def _account(self, now: float) -> None:
        """Add the expected use up to now, for node managers that measure nothing."""
        if self._rate is not None:
            lasted = now - self._at_s
            used, held = ([each * lasted for each in rate] for rate in self._rate)
            if self._used and self._held:
                used = [a + b for a, b in zip(self._used, used, strict=True)]
                held = [a + b for a, b in zip(self._held, held, strict=True)]
            self._used, self._held = used, held
        self._at_s = now

    def _observe(self, view: HoldView) -> None:
        """Note what is used and held from now on, as far as is known before the tasks start."""
        held = _sums([c.size for c in view.containers])
        free = _sums([c.free for c in view.containers])
        self._rate = ([h - f for h, f in zip(held, free, strict=True)], held) if held else None


def _sums(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the sum of each column, one after the other: so few are not worth a call of numpy.

    Nor does `sum` add them like that, from Python 3.12 on.
    """
    found = []
    for column in zip(*rows, strict=True):
        total = 0.0
        for amount in column:
            total += amount
        found.append(total)
    return found
