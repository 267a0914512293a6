"""The walk: a node's heartbeat goes down the queues to a request, until nothing more is assigned.

After CapacityScheduler.allocateContainersToNode, AbstractParentQueue and AbstractLeafQueue's
assignContainers, RegularContainerAllocator, and the checks of a commit. Each decision is booked in
`State` before the next is made.
"""

from rm.match.yarn import limits
from rm.match.yarn.amounts import Amount, single
from rm.match.yarn.books import Application, Leaf, Machine, Partition, Queue, Request, Reservation
from rm.match.yarn.decisions import (
    ANYWHERE,
    HOST,
    NO_PLACE,
    NOTHING,
    QUEUE_SKIPPED,
    RACK,
    REQUEST_SKIPPED,
    SKIPPED,
    Assignment,
    Kind,
    Room,
    Taken,
)
from rm.match.yarn.order import in_buckets, of_node
from rm.match.yarn.state import State


class Walk:
    """Decides for one node at a time."""

    def __init__(self, state: State) -> None:
        self.state = state
        # These are of the last heartbeat, reservations among them.
        self.decided: list[Taken] = []

    # -- the node ----------------------------------------------------------------------------------

    def node(self, machine: Machine) -> list[Taken]:
        """Return what is granted on a node at its heartbeat; reservations are in the state."""
        taken: list[Taken] = []
        self.decided = []
        rules = self.state.rules
        far = count = 0
        while True:
            booked = len(self.decided)
            found = self._once(machine, taken)
            if found is None:
                break
            if len(self.decided) == booked and rules.maximum_container_assignments < 0:
                # A limit refused it, and will again: YARN tries for ever here.
                break
            far += found.place == ANYWHERE
            count += 1
            if far >= rules.maximum_offswitch_assignments or found.kind is Kind.RESERVED:
                break
            if not rules.multiple_assignments_enabled:
                break
            if 0 <= rules.maximum_container_assignments <= count:
                break
        return taken

    def _once(self, machine: Machine, taken: list[Taken]) -> Assignment | None:
        """Return one container assigned or reserved; None: nothing, or the node was reserved."""
        state, calc = self.state, self.state.rules.calculator
        if machine.reservation is not None:
            self._reserved(machine, machine.reservation, taken)
            return None
        if calc.at_once(machine.free, state.rules.minimum_allocation) <= 0:
            return None
        partition, root = state.partitions[machine.partition], state.queues[0]
        found = self._queue(root, machine, partition, self._room(partition.total), respects=True)
        if found.kind in (Kind.ALLOCATED, Kind.RESERVED):
            self._commit(machine, found, taken, respects=True)
            return found
        if machine.partition == 0 or partition.exclusive:
            return None
        total = state.partitions[0].total
        found = self._queue(root, machine, partition, self._room(total), respects=False)
        if found.kind in (Kind.ALLOCATED, Kind.RESERVED):
            self._commit(machine, found, taken, respects=False)
            return found
        return None

    def _room(self, limit: Amount) -> Room:
        none = self.state.rules.calculator.none
        return Room(limit, limit, none, none)

    def _reserved(self, machine: Machine, kept: Reservation, taken: list[Taken]) -> None:
        """Serve the request for which a node is kept, if it fits by now."""
        state = self.state
        leaf, request = kept.request.app.leaf, kept.request
        room = self._room(state.partitions[0].total)
        limits.set_headroom_limit(state.rules, leaf, state.cluster, room.limit)
        if request.count <= 0:
            state.unreserve(kept)
            return
        if machine.slot in request.app.banned:
            return
        request.missed += 1
        found = self._on_node(request, machine, room, kept)
        if found.kind is Kind.ALLOCATED:
            found.fulfilled = kept
            self._commit(machine, found, taken, respects=True)
        elif found.kind is Kind.RESERVED:
            request.reserved_again += 1

    # -- queues ------------------------------------------------------------------------------------

    def _queue(
        self, queue: Queue, machine: Machine, partition: Partition, room: Room, *, respects: bool
    ) -> Assignment:
        if isinstance(queue, Leaf):
            return self._leaf(queue, machine, partition, room, respects=respects)
        state, calc = self.state, self.state.rules.calculator
        if respects and not self._accessible(queue, partition):
            return NOTHING
        asked = partition.at if respects else 0
        if not calc.positive(queue.by[asked].pending):
            return NOTHING
        if machine.reservation is not None:
            return NOTHING
        if not calc.fits(state.rules.minimum_allocation, machine.free):
            return NOTHING
        could_free = queue.by[0].reserved
        if not self._may_hold(queue, partition, room, could_free, respects=respects):
            return NOTHING
        skipped = NOTHING
        most, cluster = queue.by[partition.at].most, state.cluster
        for child in self._ordered(queue, partition):
            if calc.compare(cluster, room.limit, most) > 0:
                room.limit = most
            net = calc.sub(room.limit, room.blocked)
            limit = limits.child_limit(state.rules, queue, child, partition, cluster, net)
            below = self._room(limit)
            found = self._queue(child, machine, partition, below, respects=respects)
            if found.kind in (Kind.ALLOCATED, Kind.RESERVED):
                return found
            if found.kind is Kind.QUEUE_SKIPPED:
                skipped = found
                blocked = below.headroom if isinstance(child, Leaf) else below.blocked
                if calc.compare(cluster, blocked, calc.none) > 0:
                    room.blocked = calc.add(room.blocked, blocked)
        return skipped

    def _accessible(self, queue: Queue, partition: Partition) -> bool:
        return not partition.at or queue.labels is None or partition.label in queue.labels

    def _ordered(self, queue: Queue, partition: Partition) -> list[Queue]:
        """Return the queues below in the order in which they are served.

        Those with a guarantee first; by what they use of it; of those that use the same, the one
        with the larger guarantee. Priorities count among those on the same side of their guarantee.
        """
        children = queue.children
        if len(children) < 2:
            return children
        at, respects = partition.at, queue.respects
        if not respects and not at:
            return sorted(children, key=_by_use)
        ordered: list[Queue] = []
        for child in children:
            place = len(ordered)
            while place and self._before(child, ordered[place - 1], at, respects):
                place -= 1
            ordered.insert(place, child)
        return ordered

    def _before(self, one: Queue, other: Queue, at: int, respects: bool) -> bool:
        a, b = one.by[at], other.by[at]
        partition = self.state.partitions[at]
        if at:
            mine, others = self._names(one, partition), self._names(other, partition)
            if mine != others:
                return mine
        if (a.absolute > 0) != (b.absolute > 0):
            return a.absolute > 0
        mine_used, others_used = a.used_share, b.used_share
        if not a.absolute:
            mine_used, others_used = a.of_total, b.of_total
        p, q = (one.priority, other.priority) if respects else (0, 0)
        if p != q and (mine_used < 1) == (others_used < 1):
            return p > q
        if mine_used != others_used:
            return mine_used < others_used
        return (a.first, -a.absolute) < (b.first, -b.absolute)

    def _names(self, queue: Queue, partition: Partition) -> bool:
        return queue.labels is None or partition.label in queue.labels

    def _may_hold(
        self, queue: Queue, partition: Partition, room: Room, could_free: Amount, *, respects: bool
    ) -> bool:
        """Return whether a queue is below what it may hold, if need be without what it reserved."""
        state, calc, part = self.state, self.state.rules.calculator, queue.by[partition.at]
        cluster = state.cluster
        if respects:
            limit = part.most if calc.compare(cluster, part.most, room.limit) <= 0 else room.limit
        else:
            limit = partition.total
        room.headroom = calc.sub(limit, part.used)
        if calc.compare(cluster, part.used, limit) < 0:
            return True
        if not state.rules.reservations_continue_look_all_nodes:
            return False
        if calc.compare(cluster, could_free, calc.none) <= 0:
            return False
        return calc.compare(cluster, calc.sub(part.used, could_free), limit) < 0

    def _leaf(
        self, leaf: Leaf, machine: Machine, partition: Partition, room: Room, *, respects: bool
    ) -> Assignment:
        state, rules, calc = self.state, self.state.rules, self.state.rules.calculator
        limits.set_headroom_limit(rules, leaf, state.cluster, room.limit)
        if respects and not self._accessible(leaf, partition):
            return NOTHING
        asked = partition.at if respects else 0
        if not calc.positive(leaf.by[asked].pending):
            return NOTHING
        check, none, each = True, calc.none, None
        for app in limits.in_turn(rules, leaf):
            reserved = app.reserved[0]
            if check:
                if not self._may_hold(leaf, partition, room, reserved, respects=respects):
                    return NOTHING
                check = rules.reservations_continue_look_all_nodes and reserved != none
            if each is None:
                each = limits.user_limit(rules, leaf, partition, respects=respects)
                leaf.current_limit = leaf.headroom_limit
            app.told = True
            if app.pending[asked] == none:
                continue
            limit = limits.limit_of(rules, app.user, each)
            if not self._user_may(app, partition, room, limit):
                continue
            found = self._application(app, machine, partition, room, respects=respects)
            if found.kind is not Kind.APP_SKIPPED:
                return found
        return NOTHING

    def _user_may(self, app: Application, partition: Partition, room: Room, limit: Amount) -> bool:
        state, calc, at = self.state, self.state.rules.calculator, partition.at
        if not app.user.known:
            app.user.barred_at = app.leaf.version
        if app.user.barred_at == app.leaf.version:
            return False
        room.unreserve = calc.none
        used = app.user.used[at]
        if calc.compare(state.cluster, used, limit) <= 0:
            return True
        if not state.rules.reservations_continue_look_all_nodes:
            return False
        without = calc.sub(app.user.used[0], app.reserved[0])
        if calc.compare(state.cluster, without, limit) <= 0:
            room.unreserve = calc.sub(used, limit)
            return True
        return False

    # -- an application ----------------------------------------------------------------------------

    def _application(
        self,
        app: Application,
        machine: Machine,
        partition: Partition,
        room: Room,
        *,
        respects: bool,
    ) -> Assignment:
        if app.pending[partition.at if respects else 0] == self.state.rules.calculator.none:
            return SKIPPED
        for request in app.requests:
            found = self._request(request, machine, partition, room, respects=respects)
            if found.kind is not Kind.REQUEST_SKIPPED:
                return found
        return SKIPPED

    def _request(
        self,
        request: Request,
        machine: Machine,
        partition: Partition,
        room: Room,
        *,
        respects: bool,
    ) -> Assignment:
        state, rules, calc = self.state, self.state.rules, self.state.rules.calculator
        app = request.app
        if not respects and app.wants_master and not rules.am_non_exclusive:
            return SKIPPED
        looks_on = rules.reservations_continue_look_all_nodes
        if not looks_on and not self._wants_more(request):
            return REQUEST_SKIPPED
        reach = room.headroom
        if looks_on:
            reach = calc.add(reach, app.reserved[partition.at])
        if not calc.fits(request.amount, reach):
            return QUEUE_SKIPPED
        missed = 0
        if not request.partition:
            missed = request.missed_unlabelled = request.missed_unlabelled + 1
        if not respects and missed < state.nodes:
            return SKIPPED
        if request.partition != (partition.label if respects else ""):
            return REQUEST_SKIPPED
        if machine.slot in app.banned:
            return SKIPPED
        request.missed += 1
        found = self._on_node(request, machine, room, None)
        if found.kind is Kind.REQUEST_SKIPPED:
            request.missed -= 1
        elif found.kind in (Kind.ALLOCATED, Kind.RESERVED):
            near = found.place
            if near != ANYWHERE and (near == HOST or rules.rack_locality_full_reset):
                request.missed = 0
            if not partition.at:
                request.missed_unlabelled = 0
        return found

    def _on_node(
        self, request: Request, machine: Machine, room: Room, kept: Reservation | None
    ) -> Assignment:
        """Try the host, then its rack, then anywhere."""
        places = request.places
        rack = places.get(machine.rack, 0)
        if places.get(machine.name, 0) > 0 and rack > 0:
            found = self._assign(request, machine, HOST, room, kept)
            if found.kind in (Kind.ALLOCATED, Kind.RESERVED):
                return found
        if rack > 0:
            if not request.relax_racks:
                return REQUEST_SKIPPED
            delay = min(self.state.nodes, self.state.rules.node_locality_delay)
            if delay < request.missed:
                found = self._assign(request, machine, RACK, room, kept)
                if found.kind in (Kind.ALLOCATED, Kind.RESERVED):
                    return found
        if request.count > 0:
            if not request.relax:
                return REQUEST_SKIPPED
            if kept is not None or self._may_go_anywhere(request):
                found = self._assign(request, machine, ANYWHERE, room, kept)
                return SKIPPED if found.kind is Kind.NO_PLACE else found
            return SKIPPED
        return REQUEST_SKIPPED

    def _may_go_anywhere(self, request: Request) -> bool:
        nodes, rules = self.state.nodes, self.state.rules
        if not request.places:
            return True
        missed = request.missed
        if rules.rack_locality_additional_delay > -1:
            delay = rules.node_locality_delay + rules.rack_locality_additional_delay
            return missed > min(nodes, delay)
        wait = min(single(len(request.places) / nodes), 1.0)
        return min(float(nodes), single(single(request.count) * wait)) < missed

    def _assign(
        self, request: Request, machine: Machine, place: int, room: Room, kept: Reservation | None
    ) -> Assignment:
        state, calc = self.state, self.state.rules.calculator
        amount = request.amount
        if not calc.fits(amount, machine.total):
            return NO_PLACE
        wants_more = self._wants_more(request)
        looks_on = state.rules.reservations_continue_look_all_nodes and kept is None
        lacks = calc.sub(amount, room.headroom)
        if calc.compare(state.cluster, lacks, room.unreserve) < 0:
            lacks = room.unreserve
        must_free = calc.positive(lacks)
        if calc.at_once(machine.free, amount) > 0:
            freed = None
            if looks_on and (not wants_more or must_free):
                freed = self._to_unreserve(request, lacks if must_free else amount)
                if freed is None:
                    return NO_PLACE
            return Assignment(Kind.ALLOCATED, request, place, freed, None, amount)
        if (wants_more and not (looks_on and must_free)) or kept is not None:
            return Assignment(Kind.RESERVED, request, place, None, None, amount)
        return NO_PLACE

    def _wants_more(self, request: Request) -> bool:
        """Return whether a request wants more nodes than it has reserved, starvation counted."""
        rules, calc = self.state.rules, self.state.rules.calculator
        reserved, starvation = len(request.reserved), 0
        if reserved:
            most, least = request.app.leaf.most_asked, rules.minimum_allocation
            size = calc.ratio(request.amount, most)
            least_part = calc.ratio(calc.sub(most, least), most)
            often = single(single(request.reserved_again) / single(reserved))
            starvation = int(single(often * single(1.0 - min(size, least_part))))
        return starvation + request.count - reserved > 0

    def _to_unreserve(self, request: Request, amount: Amount) -> Reservation | None:
        calc = self.state.rules.calculator
        for kept in in_buckets(request.reserved.values(), lambda one: of_node(one.node.name)):
            if calc.fits(amount, kept.amount):
                return kept
        return None

    # -- commits -----------------------------------------------------------------------------------

    def _commit(
        self, machine: Machine, found: Assignment, taken: list[Taken], *, respects: bool
    ) -> None:
        """Book a decision, unless a limit does not hold now: then nothing comes of it."""
        state, request = self.state, found.request
        if request is None:
            return
        if found.fulfilled is None and not self._acceptable(machine, found, respects=respects):
            return
        if found.kind is Kind.RESERVED:
            state.reserve(machine, request)
            self.decided.append(Taken(request, found.place, reserved=True))
            return
        self.count_down(request, machine, found.place)
        if request.entry is None:
            request.app.wants_master = False
        kept = found.fulfilled is not None
        if found.fulfilled is not None:
            state.unreserve(found.fulfilled, fulfilled=True)
        if found.unreserved is not None:
            state.unreserve(found.unreserved)
        state.hold(machine, request.app, found.amount, kept=kept)
        state.number(request.app, found.fulfilled)
        taken.append(Taken(request, found.place, False, kept, found.unreserved))
        self.decided.append(taken[-1])

    def _acceptable(self, machine: Machine, found: Assignment, *, respects: bool) -> bool:
        state, calc, at = self.state, self.state.rules.calculator, machine.partition
        request, partition = found.request, state.partitions[machine.partition]
        if request is None:
            return False
        app, leaf = request.app, request.app.leaf
        limit = limits.user_limit(state.rules, leaf, partition, respects=respects)
        limit = limits.limit_of(state.rules, app.user, limit)
        leaf.current_limit = leaf.headroom_limit
        app.told = True
        freed = calc.none if found.unreserved is None else found.unreserved.amount
        if not app.user.known:
            return False
        if calc.compare(state.cluster, calc.sub(app.user.used[at], freed), limit) > 0:
            return False
        net = calc.sub(found.amount, freed)
        queue: Queue | None = leaf
        while queue is not None:
            part = queue.by[at]
            most = part.most if respects else partition.total
            if not calc.fits(calc.add(part.used, net), most):
                return False
            queue = queue.parent
        return True

    def count_down(self, request: Request, machine: Machine, place: int) -> None:
        """Count a container as granted that a request wanted, where it wanted it."""
        names = {HOST: (machine.name, machine.rack), RACK: (machine.rack,)}.get(place, ())
        for name in names:
            request.places[name] -= 1
            if not request.places[name]:
                del request.places[name]
        self.state.set_count(request, request.count - 1)


def _by_use(queue: Queue) -> tuple[bool, float, tuple[float, float], float]:
    part = queue.by[0]
    if part.absolute > 0:
        return False, part.used_share, part.first, -part.absolute
    return True, part.of_total, part.first, 0.0
