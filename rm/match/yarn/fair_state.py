"""The books of YARN's Fair Scheduler: shares of queues and applications, and who may run.

Used, pending and held amounts are those of `State`; what is reserved counts nowhere as used, nodes'
labels play no part, and an application runs as soon as queues and users may have one more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rm.match.yarn.amounts import Amount, single
from rm.match.yarn.books import Application, Leaf, Machine, Partition, Queue, Request, Reservation
from rm.match.yarn.rules import Rules
from rm.match.yarn.state import State, WeightOf
from weft.model.dag import Ints
from weft.model.queues import FairTerms

_ANY = 2**63 - 1
_ITERATIONS = 25


@dataclass(slots=True)
class FairRules:
    """What an owner may set, under names that YARN's properties end in."""

    node_locality_threshold: float = -1.0
    rack_locality_threshold: float = -1.0
    assign_multiple: bool = False
    dynamic_max_assign: bool = True
    max_assign: int = -1
    size_based_weight: bool = False
    reservable_nodes: float = 0.05
    reservation_multiple: float = 2.0
    update_interval_s: float = 0.5


class Share:
    """A queue's or an application's part of what is above it (Schedulable)."""

    __slots__ = ("demand", "fair", "name", "of", "start")

    def __init__(self, of: Queue | Application, name: str, start: int, none: Amount) -> None:
        self.of = of
        self.name = name
        self.start = start
        self.demand: tuple[int, ...] = none
        self.fair: list[int] = list(none)

    @property
    def used(self) -> Amount:
        """Return what it holds."""
        return self.of.used[0] if isinstance(self.of, Application) else self.of.by[0].used


class QueueShare(Share):
    """A queue, with its terms; `parts` are applications that run, `waits` others.

    It had its minimum share at `at_least_s`; -1: nobody has looked. Where it `keeps` what it holds,
    preemption takes nothing of it.
    """

    __slots__ = (
        "above",
        "am_used",
        "at_least_s",
        "below",
        "keeps",
        "least",
        "most",
        "most_of",
        "parts",
        "terms",
        "waits",
        "weight",
    )

    def __init__(
        self, queue: Queue, terms: FairTerms, above: "QueueShare | None", none: Amount
    ) -> None:
        super().__init__(queue, queue.path, 0, none)
        self.terms = terms
        self.weight = single(terms.weight)
        self.above = above
        self.keeps = queue.keeps
        self.at_least_s = -1.0
        self.below: list[QueueShare] = []
        self.am_used: Amount = none
        self.least: tuple[int, ...] = ()
        # What it may hold at most, of a cluster of that size.
        self.most: tuple[int, ...] = ()
        self.most_of: Amount = None
        self.waits: list[AppShare] = []
        self.parts: list[AppShare] = []
        if above is not None:
            above.below.append(self)


class AppShare(Share):
    """An application; `runs` where it may have containers, `master` is what its master holds.

    `kept` are the nodes that are reserved for it, also for requests that want nothing any more.
    When preemption last looked, it lacked `lacks` of its fair share and `lacks_least` of its
    queue's minimum share. It had its fair share at `at_fair_s` (-1: nobody has looked), and is not
    looked at before `next_check_s`.
    """

    __slots__ = (
        "app",
        "at_fair_s",
        "kept",
        "lacks",
        "lacks_least",
        "leaf",
        "master",
        "next_check_s",
        "runs",
    )

    def __init__(self, app: Application, leaf: QueueShare, none: Amount) -> None:
        super().__init__(app, str(app.number), app.number, none)
        self.app = app
        self.leaf = leaf
        self.master: Amount | None = None
        self.runs = False
        self.kept: list[Machine] = []
        self.lacks: Amount = none
        self.lacks_least: Amount = none
        self.at_fair_s = self.next_check_s = -1.0


class FairState(State):
    """All of the Fair Scheduler's books."""

    def __init__(
        self,
        rules: Rules,
        queues: list[Queue],
        fair: FairRules,
        terms: list[FairTerms],
        names: tuple[str, ...],
    ) -> None:
        super().__init__(rules, queues, {})
        self.fair = fair
        self.names = names
        self.memory = names.index("memory_mb")
        self.vcores = names.index("vcores") if "vcores" in names else -1
        self.racks: dict[str, int] = {}
        self.terms = terms
        self.shares: list[QueueShare] = []
        self.parts: dict[int, AppShare] = {}
        self.now_s = 0.0
        self.levels: dict[Request, int] = {}
        # What preemption takes back on a node goes to those for whom it does, in this order.
        self.promised: dict[int, dict[AppShare, Amount]] = {}
        self._nothing: tuple[int, ...] = (0,) * len(names)
        self._everything: tuple[int, ...] = (_ANY,) * len(names)
        self._set_shares(queues)

    def _set_shares(self, queues: list[Queue]) -> None:
        """Let each queue begin with its terms, and nothing in it."""
        self.shares = []
        for queue, one in zip(queues, self.terms, strict=True):
            above = None if queue.parent is None else self.shares[queue.parent.slot]
            share = QueueShare(queue, one, above, self.rules.calculator.none)
            share.least = tuple(int(one.min_resources.get(name, 0)) for name in self.names)
            self.shares.append(share)

    def change_queues(self, queues: list[Queue], now_at: Ints, weight_of: WeightOf) -> None:
        """Go on with other queues; set `terms` first. Those run that may now."""
        super().change_queues(queues, now_at, weight_of)
        self.update()

    def _count_runners(self, queues: list[Queue], now_at: Ints) -> None:
        self._set_shares(queues)
        calc = self.rules.calculator
        for share in sorted(self.parts.values(), key=_start):
            slot, waits = share.app.leaf.slot, self.runners.waits(share.app)
            # Those that wait are still in their queue's earlier form.
            share.leaf = self.shares[int(now_at[slot]) if waits else slot]
            # Who neither runs nor waits has no attempt yet, as after a restart.
            if share.runs:
                share.leaf.parts.append(share)
            elif waits:
                share.leaf.waits.append(share)
            if share.master is not None:
                share.leaf.am_used = calc.add(share.leaf.am_used, share.master)
        super()._count_runners(queues, now_at)

    # -- queues' terms -----------------------------------------------------------------------------

    def least(self, share: Share) -> tuple[int, ...]:
        """Return its minimum share."""
        return share.least if isinstance(share, QueueShare) else self._nothing

    def most(self, share: Share) -> tuple[int, ...]:
        """Return its maximum share, which is never below the minimum."""
        if not isinstance(share, QueueShare):
            return self._everything
        if share.most_of is not self.cluster:
            share.most, share.most_of = self._most_of(share.terms), self.cluster
        return share.most

    def _most_of(self, terms: FairTerms) -> tuple[int, ...]:
        found = []
        for r, name in enumerate(self.names):
            most = int(terms.max_resources.get(name, _ANY))
            if name in terms.max_parts:
                most = int(self.cluster[r] * terms.max_parts[name])
            found.append(max(most, int(terms.min_resources.get(name, 0))))
        return tuple(found)

    def weight(self, share: Share) -> float:
        """Return its weight, in single precision."""
        if isinstance(share, QueueShare):
            return share.weight
        if not self.fair.size_based_weight:
            return 1.0
        return single(math.log1p(share.demand[self.memory]) / math.log(2))

    def policy(self, share: QueueShare) -> str:
        """Return how a queue divides among what is below it: fair, fifo or drf."""
        return share.terms.policy

    # -- the regular update ------------------------------------------------------------------------

    def update(self, now: float | None = None) -> None:
        """Work out demands, then shares, from the root down (FairScheduler.update), at `now`, s."""
        self.now_s = self.now_s if now is None else now
        root = self.shares[0]
        self._demand(root)
        root.fair = list(self.cluster)
        self._divide(root)

    def _demand(self, share: QueueShare) -> None:
        calc = self.rules.calculator
        found = calc.none
        if share.at_least_s < 0:
            share.at_least_s = self.now_s
        for below in share.below:
            self._demand(below)
            found = calc.add(found, below.demand)
        for part in (*share.parts, *share.waits):
            if part.at_fair_s < 0:
                part.at_fair_s = self.now_s
            part.demand = part.used
            for request in part.app.requests:
                part.demand = calc.add(part.demand, calc.times(request.amount, request.count))
            found = calc.add(found, part.demand)
        share.demand = calc.least(found, self.most(share))

    def _divide(self, share: QueueShare) -> None:
        policy = self.policy(share)
        parts: list[Share] = [*share.below, *share.parts]
        if policy == "fifo":
            if parts:
                min(parts, key=lambda one: one.start).fair = list(share.fair)
        else:
            types = range(len(self.names)) if policy == "drf" else (self.memory,)
            for r in types:
                self._compute(parts, share.fair[r], r)
        for below in share.below:
            self._divide(below)

    def _compute(self, parts: list[Share], total: int, r: int) -> None:
        """Divide a resource by weight between minimum and maximum shares (ComputeFairShares)."""
        free: list[tuple[Share, float, int, int]] = []
        taken = 0
        for one in parts:
            most, least, weight = self.most(one)[r], self.least(one)[r], self.weight(one)
            if most <= 0 or (isinstance(one, QueueShare) and not self.runners.running[one.of.slot]):
                fixed = 0
            elif weight <= 0:
                fixed = max(least, 0)
            else:
                free.append((one, weight, least, most))
                continue
            one.fair[r] = fixed
            taken += fixed
        if not free:
            return
        total = min(sum([row[3] for row in free]), max(total - taken, 0))

        def each(ratio: float) -> list[int]:
            return [int(min(max(w * ratio, least), most)) for _, w, least, most in free]

        high, low = 1.0, 0.0
        while sum(each(high)) < total:
            high *= 2
        for _ in range(_ITERATIONS):
            middle = (low + high) / 2
            planned = sum(each(middle))
            if planned >= total:
                high = middle
                if planned == total:
                    break
            else:
                low = middle
        for row, amount in zip(free, each(high), strict=True):
            row[0].fair[r] = amount

    # -- applications ------------------------------------------------------------------------------

    def open_app(
        self, slot: int, leaf: Leaf, user: str, weight: float, priority: int, number: int
    ) -> Application:
        """Return a new application."""
        app = super().open_app(slot, leaf, user, weight, priority, number)
        share = AppShare(app, self.shares[leaf.slot], self.rules.calculator.none)
        self.parts[slot] = share
        return app

    def start(self, app: Application) -> None:
        """Let an application have containers if it runs; else it waits."""
        share = self.parts.get(app.slot)
        if share is None or share.runs or share in share.leaf.waits:
            return
        if app.over:
            # It ends, and never ran.
            return
        if self.runners.waits(app):
            share.leaf.waits.append(share)
            return
        share.runs = True
        share.leaf.parts.append(share)
        app.leaf.waiting.remove(app)
        app.leaf.active.append(app)
        app.active = True
        app.user.pending_apps -= 1
        app.user.active_apps += 1

    def takes_part(self, app: Application) -> bool:
        """Return whether an application gets containers, now or once limits allow it."""
        return self.parts[app.slot].runs or self.runners.waits(app)

    def let_run(self, app: Application) -> None:
        """Let an application run that waited for others to end."""
        share = self.parts[app.slot]
        share.leaf.waits.remove(share)
        super().let_run(app)

    def close_app(self, app: Application) -> None:
        """Forget an application that holds nothing any more."""
        super().close_app(app)
        del self.parts[app.slot]
        self.levels = {one: at for one, at in self.levels.items() if one.app is not app}

    def leave(self, app: Application) -> None:
        """End an application at once."""
        self.end_app(app)

    def end_app(self, app: Application) -> None:
        """Let an application take part no longer, and those run that waited for it."""
        if app.over:
            return
        share = self.parts[app.slot]
        for line in (share.leaf.parts, share.leaf.waits):
            if share in line:
                line.remove(share)
        self.master_ends(share)
        super().end_app(app)

    def master_runs(self, share: AppShare, amount: Amount) -> None:
        """Count a master as running in its queue."""
        calc = self.rules.calculator
        share.master = amount
        share.leaf.am_used = calc.add(share.leaf.am_used, amount)

    def master_ends(self, share: AppShare) -> None:
        """Count a master no longer."""
        if share.master is not None:
            share.leaf.am_used = self.rules.calculator.sub(share.leaf.am_used, share.master)
            share.master = None

    # -- nodes and amounts -------------------------------------------------------------------------

    def partition(self, label: str) -> Partition:
        """Return the only partition: labels play no part."""
        return self.partitions[0]

    def set_capacity(self, machine: Machine, total: Amount, free: Amount, *, up: bool) -> None:
        """Set what a node has, and count the nodes of its rack."""
        if machine.up != up:
            self.racks[machine.rack] = self.racks.get(machine.rack, 0) + (1 if up else -1)
        super().set_capacity(machine, total, free, up=up)

    def _spread(self, tops: Sequence[Queue] = ()) -> None:
        """Do nothing: shares are worked out at the next update."""

    def use(self, app: Application, at: int, amount: Amount) -> None:
        """Count an amount as used by an application's queues; below 0: as freed."""
        calc = self.rules.calculator
        queue: Queue | None = app.leaf
        while queue is not None:
            queue.by[0].used = calc.add(queue.by[0].used, amount)
            queue = queue.parent

    def reserve(self, machine: Machine, request: Request) -> None:
        """Keep a node for a request; it counts nowhere as used."""
        app, amount, calc = request.app, request.amount, self.rules.calculator
        made = self._next_made()
        kept = Reservation(machine, request, amount, made)
        machine.reservation = request.reserved[machine.slot] = kept
        self.parts[app.slot].kept.append(machine)
        app.reserved[0] = calc.add(app.reserved[0], amount)

    def promise(self, machine: Machine, share: AppShare, amount: Amount) -> None:
        """Promise what comes free on a node by preemption."""
        promised, calc = self.promised.setdefault(machine.slot, {}), self.rules.calculator
        promised[share] = calc.add(promised.get(share, calc.none), amount)

    def fulfil(self, machine: Machine, share: AppShare, amount: Amount) -> None:
        """Count what an application got on a node as what it was promised there."""
        promised, calc = self.promised.get(machine.slot, {}), self.rules.calculator
        if share in promised:
            promised[share] = calc.floored(calc.sub(promised[share], amount))
            if promised[share] == calc.none:
                del promised[share]

    def unreserve(self, kept: Reservation, *, fulfilled: bool = False) -> None:
        """Keep a node no longer."""
        app, calc = kept.request.app, self.rules.calculator
        kept.node.reservation = None
        if app.slot in self.parts:
            self.parts[app.slot].kept.remove(kept.node)
        kept.request.reserved.pop(kept.node.slot, None)
        app.reserved[0] = calc.sub(app.reserved[0], kept.amount)

    # -- limits ------------------------------------------------------------------------------------

    def starved(self, share: AppShare) -> bool:
        """Return whether an application holds less than its fair share, or than it is owed."""
        if share.lacks_least != self.rules.calculator.none:
            return True
        return self.compare_largest(share.leaf, share.used, tuple(share.fair)) < 0

    def compare(self, queue: QueueShare, a: Amount, b: Amount) -> int:
        """Compare amounts by what counts in a queue."""
        if self.policy(queue) != "drf":
            return self.compare_largest(queue, a, b)
        return self.rules.calculator.compare(self.cluster, a, b)

    def compare_largest(self, queue: QueueShare, a: Amount, b: Amount) -> int:
        """Compare amounts by the dominant share alone, or by memory."""
        if self.policy(queue) != "drf":
            return int(a[self.memory] > b[self.memory]) - int(a[self.memory] < b[self.memory])
        mine = max([x / c for x, c in zip(a, self.cluster, strict=True) if c], default=0.0)
        others = max([x / c for x, c in zip(b, self.cluster, strict=True) if c], default=0.0)
        return int(mine > others) - int(mine < others)

    def large_enough(self, queue: QueueShare, amount: Amount) -> bool:
        """Return whether containers of a size are worth a reservation."""
        calc, step = self.rules.calculator, self.rules.increment_allocation
        least = calc.share(step, single(self.fair.reservation_multiple))
        if self.policy(queue) != "drf":
            return bool(amount[self.memory] >= least[self.memory])
        return calc.compare(self.cluster, amount, least) >= 0

    def fits_below_most(self, queue: QueueShare, amount: Amount) -> bool:
        """Return whether a queue and those above it may hold so much more."""
        calc = self.rules.calculator
        at: QueueShare | None = queue
        while at is not None:
            if not calc.fits(calc.add(at.used, amount), self.most(at)):
                return False
            at = at.above
        return True

    def may_start(self, queue: QueueShare, amount: Amount, available: Amount) -> bool:
        """Return whether a queue may have one more master (canRunAppAM)."""
        part = single(queue.terms.max_am_share)
        if abs(part + 1.0) < 0.0001:
            return True
        most = self.most(queue)
        room = [
            fair or min(free, limit)
            for fair, free, limit in zip(queue.fair, available, most, strict=True)
        ]
        calc = self.rules.calculator
        return calc.fits(
            calc.add(queue.am_used, amount), tuple([math.ceil(one * part) for one in room])
        )


def _start(share: Share) -> int:
    return share.start
