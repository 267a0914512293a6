"""Preemption as YARN's monitor chooses: ProportionalCapacityPreemptionPolicy of 3.5.

A round works out what each queue ideally has, scales what queues hold beyond that down to what a
round may take, and goes through the applications of those queues, last first
(FifoCandidatesSelector). Where switched on, it then balances users and priorities within queues
(IntraQueueCandidatesSelector, FifoIntraQueuePreemptionPlugin). What is chosen is told to its
master; what is chosen again after the wait is killed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cmp_to_key

from rm.match.yarn import limits
from rm.match.yarn.amounts import Amount, Calculator, single
from rm.match.yarn.books import NONE, Application, Leaf, Partition, Queue, Reservation
from rm.match.yarn.order import Heap, in_buckets, of_node, of_priority, of_text
from rm.match.yarn.state import State


@dataclass(frozen=True, slots=True)
class Live:
    """A container that an application holds.

    `key` is its request's: the smaller goes first. The larger `made` is the later; `guest` runs on
    nodes with a label that its request did not name, `fulfils` a reservation.
    """

    number: int
    app: int
    node: int
    partition: int
    amount: Amount
    key: tuple[float, int]
    made: int
    master: bool = False
    guest: bool = False
    fulfils: bool = False
    asked_partition: int = 0


@dataclass(slots=True)
class _Entity:
    """What an application or user holds in a partition, and should."""

    used: Amount
    am_used: Amount
    pending: Amount
    ideal: Amount
    selected: Amount
    to_take: Amount
    taken: Amount
    lacks: Amount
    limit: Amount
    done: bool = False


@dataclass(slots=True)
class _Claim:
    """An application of a queue in a round within the queue."""

    app: Application
    its: _Entity
    user: _Entity


@dataclass(slots=True, eq=False)
class _Share:
    """A queue in a partition during a round (TempQueuePerPartition)."""

    queue: Queue
    partition: Partition
    used: Amount
    guaranteed: Amount
    most: Amount
    pending: Amount
    unreserved_pending: Amount
    ideal: Amount
    absolute: float
    priority: int
    untouchable: Amount
    preemptable: Amount
    to_take: Amount
    taken: Amount
    normal: tuple[float, ...] = ()
    children: list["_Share"] = field(default_factory=list)
    claims: list[_Claim] = field(default_factory=list)
    users: dict[str, _Entity] = field(default_factory=dict)


class Monitor:
    """Chooses containers round by round, and remembers since when each is chosen."""

    def __init__(self, state: State) -> None:
        self.state = state
        # Each chosen container has the time at which it first was.
        self.since: dict[int, float] = {}

    def look(
        self, held: Callable[[int], Iterable[Live]], now: float
    ) -> tuple[list[Live], list[Live]]:
        """Make a round at `now`, s; return which masters are told of, and which are to be killed.

        `held` returns what an application slot holds. Nodes reserved by applications that have to
        give something up are given back.
        """
        round_ = _Round(self.state, held)
        chosen = round_.choose()
        wait_s = self.state.rules.preemption.max_wait_before_kill_s
        told: list[Live] = []
        killed: list[Live] = []
        for one in chosen:
            since = self.since.get(one.number)
            if since is None:
                self.since[one.number] = now
                told.append(one)
            elif since + wait_s <= now + 1e-9:
                del self.since[one.number]
                killed.append(one)
        for number in [n for n, since in self.since.items() if since + 2 * wait_s < now - 1e-9]:
            del self.since[number]
        for kept in round_.given_back:
            if kept.node.reservation is kept:
                self.state.unreserve(kept)
        return told, killed


class _Round:
    """One round."""

    def __init__(self, state: State, held: Callable[[int], Iterable[Live]]) -> None:
        self.state = state
        self.calc: Calculator = state.rules.calculator
        self.terms = state.rules.preemption
        self.held = held
        self.lives: dict[int, list[Live]] = {}
        self.chosen: dict[int, Live] = {}
        # As numbers: what was chosen, and guests of which only the amounts count.
        self.passed: set[int] = set()
        self.given_back: list[Reservation] = []
        # The nodes that are reserved, by application slot: also for what nothing is pending of.
        self.kept: defaultdict[int, list[Reservation]] = defaultdict(list)
        for machine in state.machines.values():
            if machine.reservation is not None:
                self.kept[machine.reservation.request.app.slot].append(machine.reservation)
        # The reservations that were chosen, by application slot.
        self.reserved: defaultdict[int, list[Reservation]] = defaultdict(list)
        # What was chosen: the application, its partition, its size; what is reserved among it.
        self.counted: list[tuple[Application, int, Amount]] = []
        calc = self.calc
        self.left = calc.share(state.cluster, single(self.terms.total_preemption_per_round))
        self.shares: dict[tuple[int, int], _Share] = {}
        self.underserved: dict[int, dict[int, None]] = {}
        for partition in state.partitions:
            self._clone(state.queues[0], partition)

    def choose(self) -> list[Live]:
        """Return what is chosen, in the order in which it was."""
        self._ideal()
        for leaf in self._leaves(self.state.queues[0]):
            if not leaf.keeps:
                self._from_queue(leaf)
        if self.terms.intra_queue:
            self._within_queues()
        return list(self.chosen.values())

    # -- what queues have and should have ----------------------------------------------------------

    def _clone(self, queue: Queue, partition: Partition) -> _Share:
        calc, none, part = self.calc, self.calc.none, queue.by[partition.at]
        most = part.most
        if most == none:
            reach = part.absolute_most if partition.exclusive else 1.0
            most = calc.share(partition.total, reach)
        pending = less = none
        if isinstance(queue, Leaf):
            pending = self._pending(queue, partition, less_reserved=False)
            less = self._pending(queue, partition, less_reserved=True)
        respects = queue.parent is not None and queue.parent.respects
        made = _Share(
            queue,
            partition,
            part.used,
            part.guaranteed,
            most,
            pending,
            less,
            none,
            part.absolute,
            queue.priority if respects else 0,
            none,
            none,
            none,
            none,
        )
        for child in queue.children:
            below = self._clone(child, partition)
            made.children.append(below)
            made.pending = calc.add(made.pending, below.pending)
            made.unreserved_pending = calc.add(made.unreserved_pending, below.unreserved_pending)
        self.shares[queue.slot, partition.at] = made
        return made

    def _pending(self, leaf: Leaf, partition: Partition, *, less_reserved: bool) -> Amount:
        """Return what a queue's applications want, as far as their users' limits let them."""
        calc, rules, at = self.calc, self.state.rules, partition.at
        room: dict[str, Amount] = {}
        found = calc.none
        for app in leaf.active:
            user = app.user
            if user.name not in room:
                limit = limits.limit_of(rules, user, limits.user_limit(rules, leaf, partition))
                room[user.name] = calc.floored(calc.sub(limit, user.used[at]))
            wants = app.pending[at]
            if less_reserved:
                wants = calc.sub(wants, app.reserved[at])
            part = calc.least(room[user.name], calc.floored(wants))
            found = calc.add(found, part)
            room[user.name] = calc.sub(room[user.name], part)
        return found

    def _ideal(self) -> None:
        """Work out what each queue ideally has, and what each leaf has to give up."""
        calc, cluster = self.calc, self.state.cluster
        for partition in self.state.partitions:
            root = self.shares[0, partition.at]
            self._extras(root)
            root.ideal = root.guaranteed
            self._below(root)
        for leaf in self._leaves(self.state.queues[0]):
            for partition in self.state.partitions:
                share = self.shares[leaf.slot, partition.at]
                share.taken = calc.none
                allowed = calc.share(share.guaranteed, 1.0 + self.terms.max_ignored_over_capacity)
                if leaf.keeps or calc.compare(cluster, share.used, allowed) <= 0:
                    continue
                take = share.to_take
                factor = self.terms.natural_termination_factor
                if not self.terms.based_on_reserved and calc.compare(cluster, take, calc.none) > 0:
                    take = calc.part_up(take, factor, calc.whole())
                share.taken = take

    def _extras(self, share: _Share) -> None:
        calc, none, total = self.calc, self.calc.none, share.partition.total
        for child in share.children:
            self._extras(child)
        extra = calc.sub(share.used, share.guaranteed)
        if calc.compare(total, extra, none) < 0:
            extra = none
        share.untouchable = share.preemptable = none
        if not share.children:
            if share.queue.keeps:
                share.untouchable = extra
            else:
                share.preemptable = extra
            return
        below = none
        for child in share.children:
            below = calc.add(below, child.preemptable)
        if calc.compare(total, below, extra) < 0:
            share.untouchable = calc.sub(extra, below)
        share.preemptable = below if calc.compare(total, below, extra) <= 0 else extra

    def _below(self, share: _Share) -> None:
        if share.children:
            self._distribute(share.children, share.ideal)
            for child in share.children:
                self._below(child)

    def _distribute(self, shares: list[_Share], total: Amount) -> None:
        calc, none = self.calc, self.calc.none
        some = [one for one in shares if calc.compare(total, one.guaranteed, none) > 0]
        others = [one for one in shares if one not in some]
        left = self._fixpoint(total, some, total, evenly=False)
        if others and calc.compare(total, left, none) > 0:
            self._fixpoint(total, others, left, evenly=True)
        needed = none
        for one in shares:
            if calc.compare(total, one.used, one.ideal) > 0:
                needed = calc.add(needed, calc.sub(one.used, one.ideal))
        factor = 1.0
        if calc.compare(total, needed, self.left) > 0:
            factor = calc.divide(total, self.left, needed)
        for one in shares:
            wants = calc.add(one.used, one.pending)
            least = wants if calc.compare(total, wants, one.guaranteed) <= 0 else one.guaranteed
            if calc.compare(total, least, one.ideal) < 0:
                least = one.ideal
            one.to_take = none
            if calc.compare(total, one.used, least) > 0:
                one.to_take = calc.share(calc.sub(one.used, least), factor)

    def _fixpoint(
        self, total: Amount, shares: list[_Share], unassigned: Amount, *, evenly: bool
    ) -> Amount:
        """Give to the most underserved until nothing is left; return what YARN goes on with.

        That is what was left after the first of them took something: the caller's amount is not
        counted down any further there.
        """
        calc, none = self.calc, self.calc.none

        def before(one: _Share, other: _Share) -> int:
            return self._by_need(total, one, other)

        needy = Heap(before)
        for one in shares:
            one.ideal = one.used
            if calc.compare(total, one.used, one.guaranteed) > 0:
                one.ideal = calc.add(calc.least(one.guaranteed, one.used), one.untouchable)
            unassigned = calc.sub(unassigned, one.ideal)
            if calc.compare(total, one.ideal, calc.add(one.used, one.pending)) < 0:
                needy.add(one)
        told, first = unassigned, True

        while needy.items and calc.compare(total, unassigned, none) > 0:
            self._normalise(needy.items, evenly=evenly)
            most = self._most_underserved(needy)
            offered = unassigned
            for one in most:
                if not calc.positive(unassigned):
                    break
                part = calc.least(calc.parts_up(offered, one.normal), unassigned)
                took = self._offer(one, part, total)
                if calc.compare(total, took, none) > 0:
                    needy.add(one)
                unassigned = calc.sub(unassigned, took)
                if first:
                    told, first = unassigned, False
                unassigned = calc.floored(unassigned)
        while needy.items:
            self._note(needy.poll())
        return told

    def _most_underserved(self, needy: Heap[_Share]) -> list[_Share]:
        """Take those out that come first with the same need."""
        most: list[_Share] = []
        while needy.items:
            most.append(needy.poll())
            self._note(most[-1])
            if needy.items and needy.before(most[-1], needy.items[0]) < 0:
                self._note(needy.items[0])
                break
        return most

    def _note(self, share: _Share) -> None:
        self.underserved.setdefault(share.partition.at, {})[share.queue.slot] = None

    def _by_need(self, total: Amount, one: _Share, other: _Share) -> int:
        a, b = self._served(total, one), self._served(total, other)
        if one.priority != other.priority and (a < 1) == (b < 1):
            return -1 if one.priority > other.priority else 1
        return (a > b) - (a < b)

    def _served(self, total: Amount, share: _Share) -> float:
        if self.calc.compare(total, share.guaranteed, self.calc.none) > 0:
            return self.calc.divide(total, share.ideal, share.guaranteed)
        return float(2**31 - 1)

    def _normalise(self, shares: list[_Share], *, evenly: bool) -> None:
        """Set what part of what is free each queue is offered, by type."""
        calc = self.calc
        each = single(1.0 / len(shares))
        if evenly:
            for one in shares:
                one.normal = (each,) * len(calc.parts(calc.none))
            return
        guaranteed, absolute = calc.none, 0.0
        for one in shares:
            guaranteed = calc.add(guaranteed, one.guaranteed)
            absolute = single(absolute + one.absolute)
        whole = calc.parts(guaranteed)
        rows: list[list[float]] = [[] for _ in shares]
        for r, sum_ in enumerate(whole):
            by_absolute = any(
                calc.parts(one.guaranteed)[r] == 0 and one.absolute != 0 and sum_ != 0
                for one in shares
            )
            for one, row in zip(shares, rows, strict=True):
                if by_absolute:
                    row.append(single(one.absolute / absolute))
                elif absolute == 0 or sum_ == 0:
                    row.append(each)
                else:
                    row.append(single(single(calc.parts(one.guaranteed)[r]) / single(sum_)))
        for one, row in zip(shares, rows, strict=True):
            one.normal = tuple(row)

    def _offer(self, share: _Share, available: Amount, total: Amount) -> Amount:
        """Let a queue take of what is available; return what it took."""
        calc, none = self.calc, self.calc.none
        pending = share.pending if self.terms.based_on_reserved else share.unreserved_pending
        wants = calc.sub(calc.add(share.used, pending), share.ideal)
        took = available if calc.compare(total, available, wants) <= 0 else wants
        took = calc.least(calc.floored(calc.sub(share.most, share.ideal)), took)
        if not share.children:
            more = calc.compare(total, share.used, share.guaranteed) >= 0
            most = calc.sub(share.used if more else share.guaranteed, share.ideal)
            if calc.compare(total, most, none) < 0:
                most = none
            if calc.compare(total, took, most) > 0:
                took = most
        took = calc.least(calc.floored(took), available)
        share.ideal = calc.add(share.ideal, took)
        return took

    # -- containers of queues that hold too much ---------------------------------------------------

    def _leaves(self, queue: Queue) -> list[Leaf]:
        """Return the leaf queues below one in the order of YARN's set of their names."""
        if isinstance(queue, Leaf):
            return [queue]
        found = [leaf for child in queue.children for leaf in self._leaves(child)]
        return in_buckets(found, lambda leaf: of_text(leaf.path))

    def _held(self, app: Application) -> list[Live]:
        """Return what an application holds: the least important requests first, then the latest."""
        found = self.lives.get(app.slot)
        if found is None:
            found = sorted(self.held(app.slot), key=lambda c: (c.key, c.made), reverse=True)
            self.lives[app.slot] = found
        return found

    def _from_queue(self, leaf: Leaf) -> None:
        calc = self.calc
        wanted: dict[int, Amount] = {}
        for partition in self.state.partitions:
            taken = self.shares[leaf.slot, partition.at].taken
            if calc.compare(self.state.cluster, taken, calc.none) > 0:
                wanted[partition.at] = taken
        # To look at a fair queue's applications orders them anew, also where nothing is taken.
        line = limits.in_turn(self.state.rules, leaf)
        if not wanted:
            return
        self._guests(leaf, wanted)
        masters: list[Live] = []
        for app in reversed(line):
            if not wanted:
                break
            self._from_app(app, wanted, masters)
        held = calc.none
        for one in masters:
            held = calc.add(held, one.amount)
        most = calc.share(leaf.by[0].guaranteed, leaf.am_share)
        for one in masters:
            if not wanted or calc.compare(self.state.cluster, held, most) <= 0:
                break
            if self._take(one.partition, one.amount, wanted, one):
                held = calc.sub(held, one.amount)

    def _guests(self, leaf: Leaf, wanted: dict[int, Amount]) -> None:
        """Take those first that run on, or reserve, nodes whose label they did not ask for.

        One that came from a reservation stays listed as reserved: it is chosen round after round,
        which has no effect but that less is taken of others.
        """
        apps = sorted(leaf.active, key=lambda app: -app.number)
        for at in list(wanted):
            for app in apps if at else ():
                guests: list[Live | Reservation] = [
                    one for one in self._held(app) if one.guest and one.partition == at
                ]
                for kept in self.kept[app.slot]:
                    if kept.request.partition == NONE and kept.node.partition == at:
                        guests.append(kept)
                for one in sorted(guests, key=lambda one: -one.made):
                    if isinstance(one, Live):
                        self._take(at, one.amount, wanted, one, takes=not one.fulfils)
                    else:
                        self._take_reserved(app, one, wanted)

    def _take_reserved(
        self, app: Application, kept: Reservation, wanted: dict[int, Amount]
    ) -> None:
        if self._take(kept.node.partition, kept.amount, wanted, None):
            self.counted.append((app, kept.node.partition, kept.amount))
            self.reserved[app.slot].append(kept)

    def _from_app(self, app: Application, wanted: dict[int, Amount], masters: list[Live]) -> None:
        requests = {id(kept.request): kept.request for kept in self.kept[app.slot]}.values()
        for request in in_buckets(requests, lambda one: of_priority(one.key[1] - 1)):
            for kept in in_buckets(request.reserved.values(), lambda one: of_node(one.node.name)):
                if kept in self.reserved[app.slot]:
                    continue
                if not wanted:
                    return
                self._take_reserved(app, kept, wanted)
                self.given_back.append(kept)
        for one in self._held(app):
            if not wanted:
                return
            if one.number in self.passed:
                continue
            if one.master:
                masters.append(one)
                continue
            self._take(one.partition, one.amount, wanted, one)

    def _take(
        self,
        at: int,
        amount: Amount,
        wanted: dict[int, Amount],
        live: Live | None,
        *,
        conservative: bool | None = None,
        takes: bool = True,
    ) -> bool:
        """Choose a container if what is wanted of its partition gets less by it.

        `live` None: what is reserved on a node, of which only the amounts count. So it is of one
        that it does not `take`.
        """
        calc, want = self.calc, wanted.get(at)
        if want is None or (live is not None and live.number in self.passed):
            return False
        want = wanted[at] = calc.owed(want)
        if not calc.positive(want) or not calc.fits(amount, self.left):
            return False
        if self.terms.conservative_drf if conservative is None else conservative:
            if calc.some_spent(want):
                return False
        else:
            after = calc.floored(calc.sub(want, amount))
            if calc.compare(self.state.cluster, after, calc.floored(want)) >= 0:
                return False
        wanted[at] = calc.sub(want, amount)
        self.left = calc.sub(self.left, amount)
        if calc.compare(self.state.cluster, wanted[at], calc.none) <= 0:
            del wanted[at]
        if live is not None:
            self.passed.add(live.number)
            if takes:
                self.chosen[live.number] = live
            self.counted.append((self.state.apps[live.app], at, amount))
        return True

    # -- within queues -----------------------------------------------------------------------------

    def _within_queues(self) -> None:
        calc, terms = self.calc, self.terms
        queues = self.state.queues
        for at, slots in self.underserved.items():
            for slot in slots:
                leaf, share = queues[slot], self.shares[slot, at]
                if not isinstance(leaf, Leaf):
                    continue
                if leaf.by[at].used_share < single(terms.minimum_threshold):
                    continue
                self._claims(leaf, share)
        # There in the order of a hash table of ids, which begin with the manager's start.
        for app, at, amount in sorted(self.counted, key=lambda one: one[0].number):
            share = self.shares[app.leaf.slot, at]
            for claim in share.claims:
                if calc.compare(share.partition.total, claim.its.taken, amount) > 0:
                    claim.its.taken = calc.sub(claim.its.taken, amount)
        for at, slots in self.underserved.items():
            for slot in slots:
                leaf = queues[slot]
                if isinstance(leaf, Leaf) and not (leaf.keeps or leaf.keeps_inside):
                    self._from_claims(leaf, self.shares[slot, at])

    def _from_claims(self, leaf: Leaf, share: _Share) -> None:
        calc, at, terms = self.calc, share.partition.at, self.terms
        wanted = {at: calc.none}
        for claim in share.claims:
            wanted[at] = calc.add(wanted[at], claim.its.taken)
        rolling = {user.name: user.used[at] for user in leaf.users.values()}
        for claim in share.claims:
            if claim.its.taken == calc.none:
                continue
            name = claim.app.user.name
            for one in self._held(claim.app):
                if not wanted:
                    break
                if one.number in self.passed or one.master:
                    continue
                if terms.userlimit_first and self._would_go_under(one, rolling[name], leaf, name):
                    break
                drf = terms.intra_queue_conservative_drf
                took = self._take(one.partition, one.amount, wanted, one, conservative=drf)
                if took and terms.userlimit_first:
                    rolling[name] = calc.sub(rolling[name], one.amount)

    def _would_go_under(self, one: Live, used: Amount, leaf: Leaf, name: str) -> bool:
        calc = self.calc
        user = self.shares[leaf.slot, one.partition].users.get(name)
        if user is None:
            return False
        limit = calc.add(user.limit, user.am_used)
        return calc.compare(self.state.cluster, calc.sub(used, one.amount), limit) <= 0

    def _claims(self, leaf: Leaf, share: _Share) -> None:
        """Work out what each application of a queue ideally has, and who gives up what to whom."""
        calc, none, at = self.calc, self.calc.none, share.partition.at
        by_user: dict[str, Amount] = {}
        masters = none
        for app in leaf.active:
            own = app.master if app.master_partition == at else none
            by_user[app.user.name] = calc.add(by_user.get(app.user.name, none), own)
            masters = calc.add(masters, own)
        apps = [*leaf.waiting, *leaf.active]
        if len(apps) == 1:
            return
        claims = [self._claim(leaf, share, app, by_user) for app in apps]
        claims.sort(key=cmp_to_key(lambda a, b: self._in_line(leaf, a, b)))
        left = calc.sub(calc.sub(share.used, share.taken), masters)
        self._assign(claims, share, left)
        most = calc.share(share.guaranteed, single(self.terms.max_allowable_limit))
        cluster = self.state.cluster
        most = calc.sub(most, share.taken) if calc.compare(cluster, most, share.taken) > 0 else none
        if calc.compare(cluster, most, self.left) > 0:
            most = self.left
        claims.reverse()
        self._to_take(leaf, claims, most)
        share.claims = claims
        self._settle(claims)

    def _claim(
        self, leaf: Leaf, share: _Share, app: Application, by_user: dict[str, Amount]
    ) -> _Claim:
        calc, none, at = self.calc, self.calc.none, share.partition.at
        user = share.users.get(app.user.name)
        if user is None:
            am_used = by_user.get(app.user.name, none)
            limit = limits.limit_for_all(self.state.rules, leaf, share.partition)
            limit = calc.sub(limits.limit_of(self.state.rules, app.user, limit), am_used)
            used = app.user.used[at]
            user = _Entity(used, am_used, none, none, none, none, none, none, limit)
            share.users[app.user.name] = user
        own = app.master if app.master_partition == at and not app.wants_master else none
        its = _Entity(app.used[at], own, app.pending[at], none, none, none, none, none, none)
        return _Claim(app, its, user)

    def _in_line(self, leaf: Leaf, a: _Claim, b: _Claim) -> int:
        """Return who goes before whom: by priority, or as a fair queue orders them."""
        calc = self.calc
        if leaf.fair and self.terms.userlimit_first:
            if a.app.user is b.app.user:
                mine = (a.app.ordered_by, a.app.number)
                return -1 if mine < (b.app.ordered_by, b.app.number) else 1
            one = calc.sub(a.user.used, a.user.am_used)
            other = calc.sub(b.user.used, b.user.am_used)
            if one != other:
                return -1 if calc.compare(self.state.cluster, one, other) < 0 else 1
        elif a.app.priority != b.app.priority:
            return -1 if a.app.priority > b.app.priority else 1
        return -1 if a.app.number < b.app.number else 1

    def _assign(self, claims: list[_Claim], share: _Share, left: Amount) -> None:
        calc, none, cluster = self.calc, self.calc.none, self.state.cluster
        drf, at = self.terms.intra_queue_conservative_drf, share.partition.at
        for claim in claims:
            its, user = claim.its, claim.user
            if calc.compare(cluster, left, none) <= 0 or (drf and calc.some_spent(left)):
                continue
            its.selected = none
            for amount in self._selected(claim.app, at):
                its.selected = calc.add(its.selected, amount)
                user.selected = calc.add(user.selected, amount)
            held = calc.sub(its.used, its.am_used)
            ideal = calc.sub(calc.add(held, its.pending), its.selected)
            if calc.compare(cluster, user.ideal, user.limit) >= 0:
                continue
            room = calc.sub(user.limit, user.ideal)
            if calc.compare(cluster, ideal, room) > 0:
                ideal = room
            if calc.compare(cluster, left, ideal) <= 0:
                ideal = left
            its.ideal = ideal
            user.ideal = calc.add(user.ideal, ideal)
            held = calc.sub(held, its.selected)
            if calc.compare(cluster, ideal, held) > 0:
                its.lacks = calc.sub(ideal, held)
            left = calc.floored(calc.sub(left, ideal))

    def _selected(self, app: Application, at: int) -> list[Amount]:
        """Return what is chosen of an application already, by the label that it was asked with."""
        found = [
            one.amount
            for one in self._held(app)
            if one.number in self.chosen and one.asked_partition == at
        ]
        for kept in self.reserved[app.slot]:
            if self.state.partition(kept.request.partition).at == at:
                found.append(kept.amount)
        return found

    def _to_take(self, leaf: Leaf, claims: list[_Claim], most: Amount) -> None:
        """Set what applications hold beyond what they ideally have, the last in line first."""
        calc, none, cluster = self.calc, self.calc.none, self.state.cluster
        for claim in claims:
            its = claim.its
            if calc.compare(cluster, most, none) <= 0 or calc.compare(cluster, its.used, none) <= 0:
                continue
            over = calc.sub(its.used, its.ideal)
            over = calc.floored(calc.sub(over, its.selected))
            over = calc.floored(calc.sub(over, its.am_used))
            if self.terms.userlimit_first:
                over = calc.floored(calc.sub(over, self.state.rules.minimum_allocation))
            if calc.compare(cluster, over, none) < 0:
                over = none
            its.to_take = over if calc.compare(cluster, over, most) <= 0 else most
            most = calc.floored(calc.sub(most, its.to_take))

    def _settle(self, claims: list[_Claim]) -> None:
        """Let applications that lack something take from those behind, or over their user's limit.

        After validateOutSameAppPriorityFromDemand; claims are in order, the last in line first.
        """
        calc, none, cluster = self.calc, self.calc.none, self.state.cluster
        for high in reversed(claims):
            if calc.compare(cluster, high.its.lacks, none) <= 0:
                continue
            for low in claims:
                if calc.compare(cluster, low.its.to_take, none) > 0:
                    self._give(high, low)

    def _give(self, high: _Claim, low: _Claim) -> None:
        calc, none, cluster = self.calc, self.calc.none, self.state.cluster
        same = high.app.user is low.app.user
        if same and low.app.priority >= high.app.priority:
            return
        spare = calc.compare(cluster, low.its.to_take, low.its.taken) > 0
        if not spare or high.its.lacks == none:
            return
        user = low.user
        held = calc.sub(user.used, user.am_used)
        over_limit = calc.compare(cluster, held, user.limit) > 0
        if not same and not over_limit and self.terms.userlimit_first:
            return
        part = calc.sub(low.its.to_take, low.its.taken)
        if not same and low.app.priority == high.app.priority and over_limit:
            beyond = calc.sub(calc.sub(held, user.selected), user.limit)
            if user.done:
                beyond = none
            if calc.compare(cluster, beyond, part) < 0:
                user.done, part = True, beyond
        if calc.compare(cluster, part, none) > 0:
            if calc.compare(cluster, high.its.lacks, part) <= 0:
                part = high.its.lacks
            high.its.lacks = calc.sub(high.its.lacks, part)
            low.its.taken = calc.add(low.its.taken, part)
