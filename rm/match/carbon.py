"""Carbon-aware scheduling around any matcher: CAP and PCAPS.

Lechowicz et al., "Carbon- and Precedence-Aware Scheduling for Data Processing Clusters" (2025).
Both look at the carbon intensity c of the electricity now and at its least (L) and most (U) over
what is forecast. Neither stops what runs, holds masters or gangs back, or lets the cluster stand
idle: where no task runs, one may start.

* CAP caps what may be held: B of K machines always, each further one while c is at most its
  threshold of the (K - B)-search, so that all K may be used where the electricity is cleanest.
* PCAPS defers a task that the matcher inside picked by its importance r: its place in its job's
  order (`pri_score`) over the best one that waits. It starts while c <= Psi(r), which is U at
  r = 1; the room that it would have had stays empty until the next decision.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, exp, isfinite, pi, sin

import numpy as np

from rm.ledger.view import View
from rm.match.protocol import NOTHING, BaseMatcher, Match, Matcher, Placement, Scores
from weft.model.dag import Floats
from weft.model.errors import InputError
from weft.model.resources import TOLERANCE
from weft.protocol.record import changed

PLACE = "matcher.carbon"
SLOTS_A_DAY, DAY_S = 24, 86_400.0
# So many slots, two days of hours, are forecast.
SLOTS_AHEAD = 48
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Trace:
    """Carbon intensity, g CO2 a kWh, in slots of `step_s`; over its end it begins again."""

    step_s: float
    values: tuple[float, ...]

    def slot(self, now: float) -> int:
        """Return the number of the slot at a time, from 0 on."""
        return int(max(0.0, now) // self.step_s)

    def at(self, now: float) -> float:
        """Return the intensity at a time."""
        return self.values[self.slot(now) % len(self.values)]

    def outlook(self, now: float) -> tuple[float, float]:
        """Return L and U: the least and the most of the slots from that of `now` on."""
        first, n = self.slot(now), len(self.values)
        seen = [self.values[(first + i) % n] for i in range(min(SLOTS_AHEAD, n))]
        return min(seen), max(seen)


def trace_of(text: str) -> Trace:
    """Read `STEP_S;V,V,...` or `diurnal:LOW:HIGH[:PERIOD_S]`; raises InputError.

    The diurnal one is a sine over the period (a day) in 24 slots, cleanest after a quarter of it.
    """
    head, semicolon, rest = text.partition(";")
    try:
        if text.startswith("diurnal:"):
            low, high, *more = map(float, text.split(":")[1:])
            period_s = more[0] if more else DAY_S
            middle, swing = (low + high) / 2, (high - low) / 2
            waves = [sin(2 * pi * slot / SLOTS_A_DAY) for slot in range(SLOTS_A_DAY)]
            trace = Trace(period_s / SLOTS_A_DAY, tuple([middle - swing * w for w in waves]))
            problem = len(more) > 1 or not low <= high
        else:
            trace = Trace(float(head), tuple(map(float, rest.split(","))))
            problem = not semicolon
    except ValueError:
        problem = True
    if problem:
        forms = "STEP_S;VALUE,VALUE,... or diurnal:LOW:HIGH[:PERIOD_S], or a CSV file"
        raise InputError(PLACE, f"expected {forms}, got {text[:60]!r}")
    if not 0 < trace.step_s < float("inf"):
        raise InputError(PLACE, f"expected a positive time of a slot, got {trace.step_s:g} s")
    for value in trace.values:
        if not (isfinite(value) and value >= 0):
            raise InputError(PLACE, f"expected intensities from 0 on, got {value:g}")
    return trace


def thresholds(k: int, low: float, high: float) -> list[float]:
    """Return Phi_1..Phi_k of the k-search between L and U, falling; all are U where L = U.

    Phi_i = U (1 - (1 - x) (1 + x / k)^(i - 1)), where x = 1 / alpha makes Phi_(k + 1) = L.
    """
    wanted = 1.0 - low / high if high > 0 else 0.0
    # (1 - x) (1 + x / k)^k falls from 1 to 0 in between.
    below, above = 0.0, 1.0
    for _ in range(_HALVINGS):
        x = (below + above) / 2
        if (1 - x) * (1 + x / k) ** k > wanted:
            below = x
        else:
            above = x
    return [high * (1 - (1 - above) * (1 + above / k) ** i) for i in range(k)]


def quota(machines: int, least: int, intensity: float, low: float, high: float) -> int:
    """Return CAP's r(t): how many of K machines may be used now, at least B of them."""
    more = machines - least
    if more <= 0:
        return machines
    return least + sum(phi >= intensity * (1 - 1e-12) for phi in thresholds(more, low, high))


def psi(importance: Floats, gamma: float, low: float, high: float) -> Floats:
    """Return Psi_gamma(r), the most carbon intensity at which a task of importance r starts."""
    base = gamma * low + (1 - gamma) * high
    part = (np.exp(gamma * importance) - 1) / (exp(gamma) - 1)
    return np.asarray(base + (high - base) * part)


@dataclass(frozen=True, slots=True)
class CarbonSettings:
    """What `matcher.carbon...` says; see `rm.match.registry`."""

    trace: Trace
    policy: str = "cap"
    gamma: float = 0.5
    least: float = 0.2


class CarbonMatcher(BaseMatcher):
    """Asks the matcher inside, and holds back what the carbon intensity says."""

    def __init__(self, inner: Matcher, settings: CarbonSettings) -> None:
        self.inner = inner
        self.name = f"{inner.name}+{settings.policy}"
        self.strict = inner.strict
        self.in_line = getattr(inner, "in_line", False)
        self.turns = inner.turns
        self.promises = getattr(inner, "promises", 0)
        self.settings = settings
        # It is a slot, C, and CAP's part of C.
        self._told: tuple[int, float, float] = (-1, 0.0, 1.0)
        self._booked_now = 0.0

    def match(self, view: View, node: int, now: float) -> Match:
        """Return what the matcher inside grants of what may start now."""
        return self._held_to(view, node, now, self.inner.match)

    def would_match(self, view: View, node: int, now: float) -> Match:
        """Return what `match` would, without metering."""
        return self._held_to(view, node, now, self.inner.would_match)

    def terms(self, view: View, row: int) -> Scores:
        """Return what the order of the matcher inside goes by."""
        return self.inner.terms(view, row)

    def ranked(self, view: View, node: int, now: float, most: int) -> list[Placement]:
        """Return the order of the matcher inside, without the rows that wait."""
        found = self.inner.ranked(view, node, now, most)
        late = self.deferred(view, now) if self.settings.policy == "pcaps" else set[int]()
        return [one for one in found if one.row not in late]

    def _held_to(
        self, view: View, node: int, now: float, ask: Callable[[View, int, float], Match]
    ) -> Match:
        if self.settings.policy == "cap":
            return self._capped(view, node, now, ask)
        match, late = ask(view, node, now), self.deferred(view, now)
        kept = [placement for placement in match.placements if placement.row not in late]
        if len(kept) == len(match.placements):
            return match
        # Time will let go of the placements that are kept back.
        return changed(match, placements=kept, settled=False)

    # -- PCAPS -------------------------------------------------------------------------------------

    def deferred(self, view: View, now: float) -> set[int]:
        """Return the rows that wait for cleaner electricity; none where no task runs."""
        settings, rows = self.settings, view.rows
        intensity = settings.trace.at(now)
        low, high = settings.trace.outlook(now)
        if intensity <= settings.gamma * low + (1 - settings.gamma) * high or not _busy(view):
            return set()
        n = rows.count
        waiting = (rows.pending[:n] > 0) & ~rows.gang[:n]
        if not waiting.any():
            return set()
        importance = rows.pri_score[:n] / max(rows.pri_score[:n][waiting].max(), 1e-300)
        limit = psi(np.clip(importance, 0.0, 1.0), settings.gamma, low, high)
        return set(np.flatnonzero(waiting & (limit < intensity * (1 - 1e-12))).tolist())

    # -- CAP ---------------------------------------------------------------------------------------

    def part(self, view: View, now: float) -> float:
        """Return the part of the cluster that may be held now."""
        settings, all_of_it = self.settings, float(view.total.sum())
        slot = settings.trace.slot(now)
        if self._told[:2] != (slot, all_of_it):
            up = int(view.nodes.up[: view.node_count].sum())
            low, high = settings.trace.outlook(now)
            least = max(1, ceil(settings.least * up - 1e-9))
            some = quota(up, least, settings.trace.at(now), low, high) / max(up, 1)
            self._told = slot, all_of_it, some
        return self._told[2]

    def _capped(
        self, view: View, node: int, now: float, ask: Callable[[View, int, float], Match]
    ) -> Match:
        part = self.part(view, now)
        if part >= 1.0:
            return ask(view, node, now)
        room = view.total * (part * (1 + TOLERANCE)) - view.by_queue.held[0]
        busy = _busy(view)
        if busy and not (room > 0).any():
            return changed(NOTHING, settled=False)
        match = ask(view, node, now)
        kept = _within(match.placements, view, room)
        if not kept and match.placements and not busy:
            kept = [changed(match.placements[0], copies=1)]
        if kept == match.placements:
            return match
        return changed(match, placements=kept, settled=False)

    # -- as the matcher inside ---------------------------------------------------------------------

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return why a row is held back, or else what the matcher inside says."""
        now = self._booked_now
        if self.settings.policy == "pcaps" and row in self.deferred(view, now):
            return f"waits for cleaner electricity: {self.settings.trace.at(now):g} g CO2/kWh now"
        if self.settings.policy == "cap" and self.part(view, now) < 1.0:
            return f"held by the carbon cap: {100 * self.part(view, now):.0f} % of the cluster"
        return self.inner.why_not(view, node, row)

    def granted(self, view: View, node: int, placement: Placement, app: int, now: float) -> None:
        """Tell the matcher inside."""
        self.inner.granted(view, node, placement, app, now)

    def matched(self, view: View, node: int, match: Match, now: float) -> None:
        """Tell the matcher inside."""
        self._booked_now = now
        self.inner.matched(view, node, match, now)

    def ended(self, view: View, node: int, app: int, demand: Floats, now: float) -> None:
        """Tell the matcher inside."""
        self.inner.ended(view, node, app, demand, now)

    def app_joined(self, view: View, app: int, now: float) -> None:
        """Tell the matcher inside."""
        self.inner.app_joined(view, app, now)

    def app_left(self, view: View, app: int, now: float) -> None:
        """Tell the matcher inside."""
        self.inner.app_left(view, app, now)

    def slack(self, view: View) -> Floats:
        """Return the slack of the matcher inside."""
        return self.inner.slack(view)

    def shares(self, view: View, now: float) -> Floats:
        """Return the shares of the matcher inside: what holds once the electricity is clean."""
        return self.inner.shares(view, now)

    def deficits(self, view: View) -> Floats:
        """Return the deficits of the matcher inside."""
        return self.inner.deficits(view)


def _busy(view: View) -> bool:
    """Return whether any application runs more than its master."""
    apps, n = view.apps, view.app_slots
    return bool((apps.containers[:n][apps.active[:n]] > 1).any())


def _within(placements: Sequence[Placement], view: View, room: Floats) -> list[Placement]:
    """Return the first of the placements that together stay within `room` (d,), absolute."""
    kept: list[Placement] = []
    left = room.copy()
    for placement in placements:
        demand = view.rows.demand[placement.row]
        some, copies = demand > 0, placement.copies
        if some.any():
            copies = min(copies, int((left[some] / demand[some]).min() + TOLERANCE))
        if copies > 0:
            kept.append(changed(placement, copies=copies))
            left -= copies * demand
        if copies < placement.copies:
            break
    return kept
