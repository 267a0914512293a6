"""Preemption as YARN's Fair Scheduler chooses (FSLeafQueue, FSPreemptionThread of 3.5).

A queue's applications starve when they hold less than a part of their fair share, or the queue less
than its minimum share, for the timeout. For each request of a starving application the first node
is taken where containers of applications above their own fair share make room, with as few masters
as can be. Their room is promised to it at that node, and they are killed after the grace period.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rm.match.yarn.amounts import Amount, single
from rm.match.yarn.books import Leaf, Machine
from rm.match.yarn.fair_order import in_order
from rm.match.yarn.fair_state import AppShare, FairState, QueueShare
from rm.match.yarn.order import Heap, in_buckets, of_node, of_priority, of_text
from rm.match.yarn.preemption import Live

_ANY = "*"
_NEVER = float("inf")


@dataclass(slots=True)
class StarvationRules:
    """What an owner may set; nobody starves while less of the cluster is used than the threshold.

    An application for which containers were chosen is looked at again after the grace period and
    `check_delay_s`.
    """

    utilization_threshold: float = 0.8
    check_delay_s: float = 10.0


@dataclass(slots=True)
class _Going:
    """A container that was chosen, and when it is killed, s."""

    one: Live
    due_s: float


@dataclass(slots=True)
class _Way:
    """The containers that go on one node, with so many masters among them."""

    machine: Machine
    chosen: list[Live]
    masters: int = 0


class FairMonitor:
    """Looks who starves after each update of shares, and remembers what was chosen."""

    def __init__(self, state: FairState, rules: StarvationRules) -> None:
        self.state = state
        self.rules = rules
        self.going: dict[int, _Going] = {}
        # These are killed, and their nodes still run them.
        self.leaving: dict[int, Live] = {}
        self._lives: dict[int, list[Live]] = {}
        self._nodes: list[Machine] = []
        # What was chosen of an application and has not ended, by its slot.
        self._gives: dict[int, Amount] = {}

    def look(
        self, held: Callable[[], list[Live]], grace_s: float, now: float
    ) -> tuple[list[Live], list[Live]]:
        """Make a round at `now`, s; return which masters are told of, and which are to be killed.

        `held` returns all that runs and nobody ordered to stop.
        """
        starving = self._starving(now)
        due = any(one.due_s <= now + 1e-9 for one in self.going.values())
        if not starving.items and not due:
            return [], []
        self._look_around(held())
        told: list[Live] = []
        while starving.items:
            share = starving.poll()
            told += self._choose_for(share, now + grace_s)
            share.next_check_s = now + grace_s + self.rules.check_delay_s
        killed = [one.one for one in self.going.values() if one.due_s <= now + 1e-9]
        for one in killed:
            self.leaving[one.number] = self.going.pop(one.number).one
        return told, killed

    def left(self, node: int, app: int, amount: Amount) -> None:
        """Learn that a container that was ordered to stop has ended."""
        alike = [
            number
            for number, one in self.leaving.items()
            if (one.node, one.app, one.amount) == (node, app, amount)
        ]
        if alike:
            del self.leaving[alike[0]]

    # -- who starves -------------------------------------------------------------------------------

    def _starving(self, now: float) -> Heap[AppShare]:
        """Return who starves; what each lacks is kept with it, as it was when last looked at."""
        state, calc = self.state, self.state.rules.calculator

        def before(a: AppShare, b: AppShare) -> int:
            return -1 if calc.fits(self._lack(a), self._lack(b)) else 1

        found = Heap(before)
        used = zip(state.shares[0].used, state.cluster, strict=True)
        part = max(single(single(x) / single(c)) if c else 0.0 for x, c in used)
        if part <= single(self.rules.utilization_threshold):
            return found
        leaves = [share for share in state.shares if isinstance(share.of, Leaf)]
        for leaf in in_buckets(leaves, lambda one: of_text(one.name)):
            self._look_at(leaf, found, now)
        return found

    def _look_at(self, leaf: QueueShare, found: Heap[AppShare], now: float) -> None:
        state, calc = self.state, self.state.rules.calculator
        wanting = [one for one in leaf.parts if one.demand != one.used and now >= one.next_check_s]
        parts = [
            one
            for one in in_order(state, state.policy(leaf), list(wanting))
            if isinstance(one, AppShare)
        ]
        lacking = calc.none
        for part in parts:
            part.lacks = self._below_fair(part, now)
            if part.lacks == calc.none:
                break
            _add(found, part)
            lacking = calc.add(lacking, part.lacks)
        left = calc.floored(calc.sub(self._below_least(leaf, now), lacking))
        for part in parts:
            if left == calc.none:
                part.lacks_least = calc.none
                continue
            wants = calc.sub(calc.sub(part.demand, part.used), part.lacks)
            wants = calc.floored(wants)
            if state.compare(leaf, wants, left) > 0:
                # FSLeafQueue takes what is left from what it wants, and not the other way.
                wants, left = calc.floored(calc.sub(wants, left)), calc.none
            else:
                left = calc.floored(calc.sub(left, wants))
            part.lacks_least = wants
            _add(found, part)

    def _lack(self, share: AppShare) -> Amount:
        return self.state.rules.calculator.add(share.lacks, share.lacks_least)

    def _below_fair(self, share: AppShare, now: float) -> Amount:
        """Return what an application lacks of the part of its fair share that it is owed."""
        state, calc, leaf = self.state, self.state.rules.calculator, share.leaf
        part = single(_said(leaf, "fair_share_threshold", 0.5))
        owed = calc.least(calc.share(share.fair, part), share.demand)
        if state.compare_largest(leaf, share.used, owed) >= 0:
            share.at_fair_s = now
            return calc.none
        if now - share.at_fair_s < _said(leaf, "fair_share_timeout_s", _NEVER) - 1e-9:
            return calc.none
        return calc.floored(calc.sub(owed, share.used))

    def _below_least(self, leaf: QueueShare, now: float) -> Amount:
        """Return what a queue lacks of its minimum share."""
        calc = self.state.rules.calculator
        lacks = calc.floored(calc.sub(calc.least(leaf.least, leaf.demand), leaf.used))
        if lacks == calc.none:
            leaf.at_least_s = now
        if now - leaf.at_least_s < _said(leaf, "min_share_timeout_s", _NEVER) - 1e-9:
            return calc.none
        return lacks

    # -- what goes ---------------------------------------------------------------------------------

    def _look_around(self, lives: list[Live]) -> None:
        """Note what runs where, the latest first and masters last, and forget what ended."""
        state = self.state
        there = {one.number for one in lives}
        self.going = {number: one for number, one in self.going.items() if number in there}
        self._gives = {}
        for going in self.going.values():
            self._count(going.one)
        self._lives = {}
        number_of = {slot: app.number for slot, app in state.apps.items()}
        # YARN looks at those that are killed as well, and may find room enough beside them.
        lives += [one for one in self.leaving.values() if one.app in number_of]
        lives.sort(key=lambda one: (number_of[one.app], one.made), reverse=True)
        plain = [one for one in lives if not one.master]
        for one in (*plain, *[one for one in reversed(lives) if one.master]):
            self._lives.setdefault(one.node, []).append(one)
        up = [machine for machine in state.machines.values() if machine.up]
        self._nodes = in_buckets(up, lambda machine: of_node(machine.name))

    def _count(self, one: Live) -> None:
        calc = self.state.rules.calculator
        self._gives[one.app] = calc.add(self._gives.get(one.app, calc.none), one.amount)

    def _choose_for(self, share: AppShare, due_s: float) -> list[Live]:
        """Choose what goes for an application, and promise it the room."""
        state, calc = self.state, self.state.rules.calculator
        told: list[Live] = []
        for name, amount, count, relaxed in self._requests(share):
            for _ in range(count):
                way = self._way(name, amount, relaxed=relaxed)
                if way is None or not way.chosen:
                    continue
                room = calc.none
                for one in way.chosen:
                    self.going[one.number] = _Going(one, due_s)
                    self._count(one)
                    room = calc.add(room, one.amount)
                state.promise(way.machine, share, room)
                told += way.chosen
        return told

    def _requests(self, share: AppShare) -> Iterator[tuple[str, Amount, int, bool]]:
        """Yield where, of what size and how many containers an application is to get.

        The last says whether others than the nodes named will do. A host and its rack, or a rack
        and anywhere, are the same containers: only what comes first counts.
        """
        calc, left = self.state.rules.calculator, self._lack(share)
        rack_of = {machine.name: machine.rack for machine in self._nodes}
        racks = set(rack_of.values())
        for request in in_buckets(share.app.requests, lambda one: of_priority(one.key[1] - 1)):
            hosts_seen: set[str] = set()
            racks_seen: set[str] = set()
            anywhere = False
            named = [name for name, count in request.places.items() if count > 0]
            for name in in_buckets([*named, _ANY], of_text):
                if left == calc.none:
                    return
                if name == _ANY:
                    anywhere = not hosts_seen and not racks_seen
                    fresh, count, relaxed = anywhere, request.count, request.relax
                elif name in rack_of:
                    fresh = not anywhere and rack_of[name] not in racks_seen
                    hosts_seen.update([rack_of[name]] if fresh else ())
                    count, relaxed = request.places[name], True
                else:
                    fresh = name in racks and not anywhere and name not in hosts_seen
                    racks_seen.update([name] if fresh else ())
                    count, relaxed = request.places[name], request.relax_racks
                fits = calc.memory_of(left) // calc.memory_of(request.amount) if fresh else 0
                if not fits:
                    continue
                if fits < count:
                    # YARN makes such a request anew, and a new one is relaxed.
                    count, relaxed = fits, True
                yield name, request.amount, count, relaxed
                left = calc.floored(calc.sub(left, calc.times(request.amount, count)))

    def _way(self, name: str, amount: Amount, *, relaxed: bool) -> _Way | None:
        """Return what goes for one container, on a node of a name."""
        if name == _ANY:
            return self._best(self._nodes, amount)
        # Those of a rack are listed as they came.
        near = [
            machine
            for machine in self.state.machines.values()
            if name in (machine.name, machine.rack)
        ]
        near = [machine for machine in near if machine.up]
        way = self._best(near, amount)
        if relaxed and way is not None and way.masters:
            spare = self._best([one for one in self._nodes if one not in near], amount)
            if spare is not None and spare.masters < way.masters:
                return spare
        return way

    def _best(self, nodes: list[Machine], amount: Amount) -> _Way | None:
        """Return the first way of those with the fewest masters."""
        best: _Way | None = None
        for machine in nodes:
            found = self._on_node(machine, amount, best)
            if found is not None:
                best = found
                if not best.masters:
                    break
        return best

    def _on_node(self, machine: Machine, amount: Amount, best: _Way | None) -> _Way | None:
        """Return what goes on a node if it makes room, with fewer masters than the best so far."""
        state, calc = self.state, self.state.rules.calculator
        kept = machine.reservation
        free = machine.free if kept is None else calc.sub(machine.free, kept.amount)
        for promised in state.promised.get(machine.slot, {}).values():
            free = calc.sub(free, promised)
        free, way, taken = calc.floored(free), _Way(machine, []), dict[int, Amount]()
        for one in self._lives.get(machine.slot, ()):
            if one.number in self.going:
                continue
            before = taken.get(one.app, calc.none)
            if self._may_go(one, before):
                way.masters += one.master
                if one.master and best is not None and way.masters >= best.masters:
                    return None
                way.chosen.append(one)
                taken[one.app] = calc.add(before, one.amount)
                free = calc.add(free, one.amount)
            if calc.fits(amount, free):
                return way
        return None

    def _may_go(self, one: Live, taken: Amount) -> bool:
        """Return whether its application keeps its fair share without a container."""
        state, calc = self.state, self.state.rules.calculator
        share = state.parts[one.app]
        leaf = share.leaf
        if (
            one.number in self.leaving
            or leaf.keeps
            or (one.master and not leaf.terms.am_preemption)
        ):
            return False
        gone = calc.add(calc.add(self._gives.get(one.app, calc.none), taken), one.amount)
        return state.compare_largest(leaf, calc.sub(share.used, gone), tuple(share.fair)) >= 0


def _add(found: Heap[AppShare], share: AppShare) -> None:
    if share not in found.items:
        found.add(share)


def _said(queue: QueueShare, name: str, usual: float) -> float:
    """Return a term of a queue, or of the nearest above that has it."""
    at: QueueShare | None = queue
    while at is not None:
        value = float(getattr(at.terms, name))
        if value >= 0:
            return value
        at = at.above
    return usual
