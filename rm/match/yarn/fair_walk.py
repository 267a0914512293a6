"""The walk of YARN's Fair Scheduler: FairScheduler.attemptScheduling and FSAppAttempt."""

import math

from rm.match.yarn.amounts import Amount, single
from rm.match.yarn.books import Leaf, Machine, Request, Reservation
from rm.match.yarn.decisions import ANYWHERE, HOST, RACK, Taken
from rm.match.yarn.fair_order import in_order
from rm.match.yarn.fair_state import AppShare, FairState, QueueShare, Share
from rm.match.yarn.walk import Walk


class FairWalk(Walk):
    """Decides for one node at a time."""

    def __init__(self, state: FairState) -> None:
        super().__init__(state)
        self.books = state
        self._available: Amount = state.rules.calculator.none

    def node(self, machine: Machine) -> list[Taken]:
        """Return what is granted on a node at its heartbeat; reservations are in the state."""
        state, calc, rules = self.books, self.books.rules.calculator, self.books.fair
        self.decided = []
        root = state.shares[0]
        self._available = calc.sub(state.cluster, root.used)
        self._serve_promised(machine)
        kept = machine.reservation
        if kept is not None and self._serve_kept(machine, kept):
            return self._granted()
        room, got, count = calc.share(machine.free, 0.5), calc.none, 0
        while machine.reservation is None:
            if not self._descend(root, machine):
                break
            one, count = self.decided[-1], count + 1
            got = calc.add(got, one.request.amount)
            if one.reserved or not rules.assign_multiple:
                break
            if rules.dynamic_max_assign:
                if not calc.fits(got, room):
                    break
            elif 0 < rules.max_assign <= count:
                break
        return self._granted()

    def _granted(self) -> list[Taken]:
        return [one for one in self.decided if not one.reserved]

    def _serve_promised(self, machine: Machine) -> None:
        """Serve those for whom something was preempted on a node (assignPreemptedContainers)."""
        state, calc = self.books, self.books.rules.calculator
        promised = state.promised.get(machine.slot)
        if not promised:
            return
        for share in list(promised):
            if not self._lacks(share):
                del promised[share]
        for share, amount in list(promised.items()):
            left = amount
            while left != calc.none and self._tried(share, machine):
                one = self.decided[-1]
                if one.reserved:
                    break
                left = calc.floored(calc.sub(left, one.request.amount))
        if not promised:
            del state.promised[machine.slot]

    def _lacks(self, share: AppShare) -> bool:
        """Return whether an application is there and still starves."""
        none = self.books.rules.calculator.none
        lacks = share.lacks != none or share.lacks_least != none
        return self.books.parts.get(share.app.slot) is share and lacks and self.books.starved(share)

    def _serve_kept(self, machine: Machine, kept: Reservation) -> bool:
        """Serve the request for which a node is kept; False: the node is kept no longer."""
        state, calc, request = self.books, self.books.rules.calculator, kept.request
        share = state.parts[request.app.slot]
        if not self._has_work_for(request, machine, share) or self._waits_for_room(share, {}):
            state.unreserve(kept)
            return False
        if calc.fits(kept.amount, machine.free):
            request.missed += 1
            self._place(request, machine, share, kept)
        return True

    def _descend(self, queue: QueueShare, machine: Machine) -> bool:
        """Let a queue decide; return whether something was granted or reserved."""
        state, calc = self.books, self.books.rules.calculator
        if machine.reservation is not None or not calc.fits(queue.used, state.most(queue)):
            return False
        if not isinstance(queue.of, Leaf):
            below: list[Share] = [*queue.below]
            return any(
                isinstance(one, QueueShare) and self._descend(one, machine)
                for one in in_order(state, state.policy(queue), below)
            )
        # Hundreds may wait for a leaf's limit of masters, and that is the same for all of one size.
        room: dict[Amount, bool] = {}
        wanting: list[Share] = []
        for one in queue.parts:
            if one.demand != one.used and not self._waits_for_room(one, room):
                wanting.append(one)
        return any(
            isinstance(one, AppShare) and self._offered(one, machine)
            for one in in_order(state, state.policy(queue), wanting)
        )

    def _offered(self, share: AppShare, machine: Machine) -> bool:
        return machine.slot not in share.app.banned and self._request_tried(share, machine)

    def _tried(self, share: AppShare, machine: Machine) -> bool:
        """Let an application's requests try a node, one after the other."""
        return not self._waits_for_room(share, {}) and self._request_tried(share, machine)

    def _request_tried(self, share: AppShare, machine: Machine) -> bool:
        for request in share.app.requests:
            if not self._has_work_for(request, machine, share):
                continue
            request.missed += 1
            found = self._place(request, machine, share, None)
            if found is not None:
                return found
        return False

    def _waits_for_room(self, share: AppShare, room: dict[Amount, bool]) -> bool:
        """Return whether its master may not start yet; `room` is what was found for its leaf."""
        if not share.app.wants_master or not share.app.requests:
            return False
        amount = share.app.requests[0].amount
        if amount not in room:
            room[amount] = self.books.may_start(share.leaf, amount, self._available)
        return not room[amount]

    def _has_work_for(self, request: Request, machine: Machine, share: AppShare) -> bool:
        places, calc = request.places, self.books.rules.calculator
        rack, host = places.get(machine.rack, 0), places.get(machine.name, 0)
        if request.count <= 0 or not (request.relax or rack > 0):
            return False
        if rack > 0 and not request.relax_racks and not host:
            return False
        if not calc.fits(request.amount, machine.total):
            return False
        return self.books.fits_below_most(share.leaf, request.amount)

    def _place(
        self, request: Request, machine: Machine, share: AppShare, kept: Reservation | None
    ) -> bool | None:
        """Try the host, then the rack, then anywhere; None: the next request may be tried."""
        places = request.places
        rack, host = places.get(machine.rack, 0), places.get(machine.name, 0)
        level = self._level(request)
        if rack > 0 and host > 0:
            return self._grant(request, machine, HOST, share, kept)
        if machine.rack in places and not request.relax_racks:
            return None
        if rack > 0 and level >= RACK:
            return self._grant(request, machine, RACK, share, kept)
        if not request.relax:
            return None
        if request.count > 0 and (not places or level == ANYWHERE):
            return self._grant(request, machine, ANYWHERE, share, kept)
        return None

    def _level(self, request: Request) -> int:
        """Return how far from its places a request may go by now (getAllowedLocalityLevel)."""
        rules, levels = self.books.fair, self.books.levels
        near, far = min(rules.node_locality_threshold, 1.0), min(rules.rack_locality_threshold, 1.0)
        if near < 0 or far < 0:
            return ANYWHERE
        level = levels.setdefault(request, -1)
        if level < 0:
            levels[request] = HOST
            return HOST
        if level < ANYWHERE and request.missed > self.books.nodes * (
            near if level == HOST else far
        ):
            levels[request] = level = level + 1
            request.missed = 0
        return level

    def _grant(
        self,
        request: Request,
        machine: Machine,
        place: int,
        share: AppShare,
        kept: Reservation | None,
    ) -> bool:
        state, calc, app = self.books, self.books.rules.calculator, request.app
        if calc.fits(request.amount, machine.free):
            level = state.levels.get(request, HOST)
            if place < level:
                state.levels[request] = place
            amount, masters = request.amount, app.wants_master
            self.count_down(request, machine, place)
            if kept is not None:
                state.unreserve(kept)
            state.hold(machine, app, amount)
            state.fulfil(machine, share, amount)
            state.number(app, kept)
            if masters:
                app.wants_master = False
                state.master_runs(share, amount)
            self.decided.append(Taken(request, place, fulfilled=kept is not None))
            return True
        if not state.starved(share) or not state.large_enough(share.leaf, request.amount):
            return False
        if share in state.promised.get(machine.slot, ()):
            return False
        if self._too_many_kept(share.kept, machine, place):
            return False
        if kept is None:
            state.reserve(machine, request)
            self.decided.append(Taken(request, place, reserved=True))
        return True

    def _too_many_kept(self, nodes: list[Machine], machine: Machine, place: int) -> bool:
        """Return whether an application keeps as many nodes as it may (reservable-nodes)."""
        if place == HOST:
            return False
        state = self.books
        among = state.nodes
        if place == RACK:
            nodes = [node for node in nodes if node.rack == machine.rack]
            among = state.racks.get(machine.rack, 0)
        allowed = single(single(among) * single(state.fair.reservable_nodes))
        return len(nodes) >= math.ceil(allowed)
