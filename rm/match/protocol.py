"""How a matcher is written: the view goes in, placements for one node come out.

A matcher is one file with one class (usually on `BaseMatcher`) and one row in `registry.py`:

* `match(view, node, now)` answers what to grant on node slot `node` now. It changes nothing: the
  same view (and the same own state) gives the same answer. Own state (deficit counters, a moving
  average) changes in the notifications only, which the core calls after it has booked.
* Start from `candidates.candidates`: the rows that may use the node and fit there now, with all
  preconditions applied (label, black list, reservation, gang). Rows are few hundred: score them
  in a numba kernel (`weft.policies.compiled.kernel`, in a file named `*_kernels.py`), pick,
  subtract, repeat. A placement takes any number of a row's pending containers at once, with the
  scores that won (for `weft explain` and the decision log).
* Rows are of `view.rows` (arrays sliced with `count`); a row's queue is
  `view.apps.queue[view.rows.app[row]]`, its user `view.apps.user[...]`. `serial` names an ask
  for good, a row number only until the next event.
* Who goes first is told by `ranked`, which asks `would_match` again and again; what an order goes
  by beside a pick's scores (priority, what a queue holds) is named by `terms`.
* Break every tie: the earlier application (`view.apps.order`), then the smaller `serial`.
* A rigid resource never goes beyond `available`. A divisible one may when the placement says
  `overbooked=True`, up to 1 + `slack` x capacity. `available` is then negative.
* Limits of queues and users, and guarantees, are kept in one place (`candidates.limits_of`):
  ask `admits` for each row, `take` each pick. `keeps=True` where the policy's own order does not
  divide the cluster among queues.
* `Match.declined` names rows that fit but wait for a nearer node: the core counts their missed
  opportunities (`view.rows.missed`), which is what delay scheduling goes by.
* `Match.settled=False` says that the answer may differ at the next opportunity although nothing
  changed (time matters, or something was declined): the core then asks again at the next heartbeat.
* An answer may be shared: who wants another one makes a copy (`weft.protocol.record.changed`).
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from rm.ledger.asks import AskEntry
from rm.ledger.view import View
from rm.match.limit_kernels import guarantees
from weft.model.dag import Floats, Ints
from weft.model.resources import ResourceTypes, Vector
from weft.policies.compiled import mypyc_attr, steady
from weft.protocol.record import record

_guarantees = steady(guarantees)
Scores = tuple[tuple[str, float], ...]


@record
class Placement:
    """Grant `copies` containers of a row on the node that was asked about.

    `scores` are the matcher's own terms of the winning score, named. If `overbooked`, divisible
    resources may pass the capacity.
    """

    row: int
    copies: int
    scores: Scores = ()
    overbooked: bool = False


@record
class Match:
    """The answer for one node.

    Rows that are `declined` fit but wait for a nearer node. If it is `settled`, asking again would
    give nothing as long as nothing changes. `observed` is what the matcher wants back in `matched`.
    """

    placements: list[Placement]
    declined: tuple[int, ...] = ()
    settled: bool = True
    observed: tuple[float, ...] = ()


NOTHING = Match([])


@record
class Held:
    """A container that an application holds, as a policy that `preempts` sees it.

    `nth` counts back from the application's latest, which is 1. `entry` None: a master's.
    """

    number: int
    nth: int
    node: int
    demand: Vector
    entry: AskEntry | None


@record
class PreemptionTerms:
    """What an owner set about preemption (`rm.settings`)."""

    intra_queue: bool
    natural: float
    round_max: float
    dead_zone: float
    grace_s: float


class Planner(Protocol):
    """Who answers for a policy that plans ahead (`rm.placing.backfill`)."""

    def match(self, slot: int) -> Match:
        """Return what to grant on a node slot now."""

    def would_match(self, slot: int) -> Match:
        """Return what `match` would, were the asks as they are shown."""

    def start_gangs(self) -> bool:
        """Start the gangs that are planned for now; return whether nothing is promised beside."""

    def finds_none(self, serial: int) -> bool:
        """Return whether no end is known that would make room for an ask or a gang."""

    def promised_s(self, entry: AskEntry) -> float | None:
        """Return when an ask is to start, s of cluster time; None where nothing is promised."""


class Matcher(Protocol):
    """The seam; see the module's text for the rules.

    If it is `strict`, nothing ever goes before the head of the line. One that `reserves` makes its
    own reservations, places masters and wants each heartbeat. One that `preempts` chooses itself
    what is taken back.
    """

    name: str
    strict: bool
    turns: int

    def match(self, view: View, node: int, now: float) -> Match:
        """Return what to grant on a node now, without changing anything."""

    def would_match(self, view: View, node: int, now: float) -> Match:
        """Return what `match` would, for a caller that only wants to know; it is not metered."""

    def ranked(self, view: View, node: int, now: float, most: int) -> list[Placement]:
        """Return at most so many rows in the order in which a node's room goes to them."""

    def terms(self, view: View, row: int) -> Scores:
        """Return what the order of a row goes by, beside the scores of its placement, by name."""

    def granted(self, view: View, node: int, placement: Placement, app: int, now: float) -> None:
        """Learn that a placement was booked (`placement.row` may be empty by now)."""

    def matched(self, view: View, node: int, match: Match, now: float) -> None:
        """Learn that all of an answer of `match` was booked."""

    def ended(self, view: View, node: int, app: int, demand: Floats, now: float) -> None:
        """Learn that a container of an application slot ended and was freed."""

    def app_joined(self, view: View, app: int, now: float) -> None:
        """Learn that a new application has a slot (perhaps one used before)."""

    def app_left(self, view: View, app: int, now: float) -> None:
        """Learn that an application is about to leave its slot."""

    def slack(self, view: View) -> Floats:
        """Return how far beyond its capacity a node may be filled, over capacity, shape (d,)."""

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return in few words why a row that fits a node was not picked; "": it was outscored."""

    reserves: bool

    def wants(self, view: View, node: int) -> bool:
        """Return whether a heartbeat of a node may come to anything, where it `reserves`."""

    def normalised(self, types: ResourceTypes, demand: Vector) -> Vector:
        """Return what a container is granted that asks for a demand."""

    def headroom(self, view: View, app: int) -> Vector | None:
        """Return what an application may count on getting; None: as the queues' limits say."""

    def attempt_added(
        self, view: View, app: int, demand: Vector | None, label: str, *, runs: bool = False
    ) -> None:
        """Learn that an application's master needs a container (None: it runs outside).

        If it `runs`, it has the container: the manager started anew.
        """

    def attempt_over(self, view: View, app: int) -> None:
        """Learn that no master of an application waits any more."""

    def app_over(self, view: View, app: int) -> None:
        """Learn that an application and its master are over; its containers end yet."""

    def check(self, view: View) -> None:
        """Raise InvariantError where what it knows contradicts the view; between two events."""

    def app_changed(self, view: View, app: int) -> None:
        """Learn that an application has another priority or queue."""

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Learn that the tree of queues is another.

        `now_at` (queues before,) says which queue each one is in `view.queues`; -1: it is gone.
        """

    def banned(self, view: View, node: int, app: int, on: bool) -> None:
        """Learn that an application must not use a node, or may again."""

    preempts: bool

    def preempt(
        self,
        view: View,
        held: Callable[[int], Iterable[Held]],
        terms: PreemptionTerms,
        now: float,
    ) -> tuple[list[int], list[int]]:
        """Return the containers whose masters are told that they will go, and those that go now.

        `held` returns what an application slot holds and nobody ordered to stop.
        """

    def stop_ordered(self, view: View, node: int, app: int, demand: Floats) -> None:
        """Learn that a container was ordered to stop; its node still runs it."""

    def stopped_ends(self) -> None:
        """Learn that the container that is freed next was ordered to stop."""

    def shares(self, view: View, now: float) -> Floats:
        """Return what each application may count on now, absolute, shape (app_slots, d)."""

    def deficits(self, view: View) -> Floats:
        """Return the deficit counter of each queue, shape (queues,); zeros where there is none."""


def every_term(matcher: Matcher, view: View, placement: Placement) -> Scores:
    """Return all that a matcher says of why a row stands where it does."""
    scores = dict(placement.scores)
    for name, value in matcher.terms(view, placement.row):
        scores.setdefault(name, value)
    return tuple(scores.items())


# Who goes behind others with each grant: nobody, leaf queues, applications as well.
NO_TURNS, QUEUES_TURNS, APPS_TURNS = range(3)


# Matchers of other packages are subclasses of this.
@mypyc_attr(allow_interpreted_subclasses=True)
class BaseMatcher:
    """No own state; shares are the leaf queue's guarantee over its active applications.

    If it is `in_line`, applications of a leaf queue are served by priority, then submission. Where
    those that a grant puts behind others are leaf queues, or applications in them as well, `turns`
    says so: the order of now does not last then. To so many applications of the line as it
    `promises`, starts are promised by a `planner`, which the core gives it.
    """

    name = ""
    in_line = False
    strict = False
    turns = NO_TURNS
    reserves = False
    preempts = False

    def preempt(
        self,
        view: View,
        held: Callable[[int], Iterable[Held]],
        terms: PreemptionTerms,
        now: float,
    ) -> tuple[list[int], list[int]]:
        """Return nothing: `rm.placing.preempt` chooses."""
        return [], []

    def stop_ordered(self, view: View, node: int, app: int, demand: Floats) -> None:
        """Do nothing: what stops is held until it has ended."""

    def stopped_ends(self) -> None:
        """Do nothing: it is freed as others are."""

    promises = 0
    planner: Planner | None = None

    def wants(self, view: View, node: int) -> bool:
        """Return False: it reserves nothing."""
        return False

    def normalised(self, types: ResourceTypes, demand: Vector) -> Vector:
        """Return the demand as it is."""
        return demand

    def headroom(self, view: View, app: int) -> Vector | None:
        """Return None: the queues' limits say it."""
        return None

    def attempt_added(
        self, view: View, app: int, demand: Vector | None, label: str, *, runs: bool = False
    ) -> None:
        """Do nothing: masters are placed before others."""

    def attempt_over(self, view: View, app: int) -> None:
        """Do nothing: masters are placed before others."""

    def app_over(self, view: View, app: int) -> None:
        """Do nothing: it goes by what is held and asked."""

    def check(self, view: View) -> None:
        """Do nothing: it goes by the view alone."""

    def app_changed(self, view: View, app: int) -> None:
        """Do nothing: the view shows it."""

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Do nothing: the view shows it."""

    def banned(self, view: View, node: int, app: int, on: bool) -> None:
        """Do nothing: the view shows it."""

    def match(self, view: View, node: int, now: float) -> Match:
        """Return what to grant on a node now; every policy has its own."""
        raise NotImplementedError

    def would_match(self, view: View, node: int, now: float) -> Match:
        """Return what `match` does: without metering they are the same."""
        return self.match(view, node, now)

    def ranked(self, view: View, node: int, now: float, most: int) -> list[Placement]:
        """Return at most so many rows in the order in which a node's room goes to them.

        The matcher is asked again with the rows hidden that it has named, so this is its own order.
        """
        found: list[Placement] = []
        hidden: dict[int, int] = {}
        try:
            while len(found) < most:
                answer = self.would_match(view, node, now).placements
                fresh = next((one for one in answer if one.row not in hidden), None)
                if fresh is None:
                    break
                found.append(fresh)
                hidden[fresh.row] = view.set_aside(fresh.row)
        finally:
            for row, pending in hidden.items():
                view.put_back(row, pending)
        return found

    def terms(self, view: View, row: int) -> Scores:
        """Return nothing: the scores of a placement say all."""
        return ()

    def granted(self, view: View, node: int, placement: Placement, app: int, now: float) -> None:
        """Do nothing: this policy keeps no state."""

    def matched(self, view: View, node: int, match: Match, now: float) -> None:
        """Do nothing: this policy keeps no state."""

    def ended(self, view: View, node: int, app: int, demand: Floats, now: float) -> None:
        """Do nothing: this policy keeps no state."""

    def app_joined(self, view: View, app: int, now: float) -> None:
        """Do nothing: this policy keeps no state."""

    def app_left(self, view: View, app: int, now: float) -> None:
        """Do nothing: this policy keeps no state."""

    def slack(self, view: View) -> Floats:
        """Return zeros: no overbooking."""
        return np.zeros(len(view.types))

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return "": only the order of the asks decides."""
        return ""

    def shares(self, view: View, now: float) -> Floats:
        """Return the capacity of the leaf queue x C / active applications in it."""
        apps, tree = view.apps, view.queues
        return _guarantees.code(
            view.app_slots, apps.active, apps.queue, view.by_queue.apps, tree.capacity, view.total
        )

    def deficits(self, view: View) -> Floats:
        """Return zeros: no counters."""
        return np.zeros(len(view.queues))
