"""How the walk's books change: nodes and applications come and go, amounts are used and freed."""

from bisect import insort
from collections.abc import Callable, Sequence

from rm.match.yarn import limits
from rm.match.yarn.amounts import Amount, single
from rm.match.yarn.books import (
    NONE,
    Application,
    InPartition,
    Leaf,
    Machine,
    Partition,
    Queue,
    Request,
    Reservation,
    User,
)
from rm.match.yarn.rules import Rules
from rm.match.yarn.running import Runners
from weft.model.dag import Ints

WeightOf = Callable[[Leaf, str], float]


def _key(request: Request) -> tuple[float, int]:
    return request.key


class State:
    """All of the scheduler's books; queues are in the tree's order, parents first."""

    def __init__(self, rules: Rules, queues: list[Queue], labels: dict[str, bool]) -> None:
        self.rules = rules
        none = rules.calculator.none
        self.partitions = [Partition(0, NONE, none, exclusive=True)]
        for label, exclusive in labels.items():
            self.partitions.append(Partition(len(self.partitions), label, none, exclusive))
        self.partition_of = {one.label: one for one in self.partitions}
        self.queues = queues
        self.cluster: Amount = none
        self.nodes = 0
        self.machines: dict[int, Machine] = {}
        self.apps: dict[int, Application] = {}
        self.of_ask: dict[int, Request] = {}
        self._made = 0
        # The node that told last of an end, and by it applications that left since.
        self.freed_at = -1
        self.left: list[tuple[int, Application]] = []
        self.runners = self._make_runners(queues)
        self._set_out(queues)

    def _set_out(self, queues: list[Queue]) -> None:
        """Let leaf queues begin with nothing in them."""
        none = self.rules.calculator.none
        for queue in queues:
            if isinstance(queue, Leaf):
                queue.active_used = [none] * len(self.partitions)
                queue.ratio = [0.0] * len(self.partitions)
                queue.current_limit = queue.headroom_limit = none

    def change_queues(self, queues: list[Queue], now_at: Ints, weight_of: WeightOf) -> None:
        """Go on with other queues (CapacityScheduler.reinitialize): what is in them stays there.

        `now_at` (queues before,) says which of them each one is now, -1: it is gone, and empty.
        `weight_of` answers a user's weight in a leaf queue. Queues that are made for a submission,
        or go again, change those beside them alone (AbstractParentQueue.addDynamicChildQueue).
        """
        self.let_go()
        self._set_out(queues)
        before, self.queues = self.queues, queues
        anew = _beside_what_was_made(before, queues, now_at)
        for old in before:
            new = queues[int(now_at[old.slot])]
            if now_at[old.slot] < 0 or not isinstance(old, Leaf) or not isinstance(new, Leaf):
                continue
            new.users, new.active, new.waiting = old.users, old.active, old.waiting
            new.active_used, new.ratio = old.active_used, old.ratio
            new.version, new.only_pending, new.limits = old.version, old.only_pending, old.limits
            new.current_limit, new.headroom_limit = old.current_limit, old.headroom_limit
            for user in new.users.values():
                user.weight = weight_of(new, user.name)
            for app in (*new.active, *new.waiting):
                app.leaf, app.unordered = new, app.unordered or not anew
            self._weigh(new)
            self._carry(old, new)
        self._spread(anew)
        self._count_runners(queues, now_at)

    def _make_runners(self, queues: list[Queue]) -> Runners:
        rules = self.rules
        most = [queue.most_running for queue in queues]
        return Runners(most, rules.user_max_running, rules.users_max_running)

    def _count_runners(self, queues: list[Queue], now_at: Ints) -> None:
        """Go by other queues' limits: who runs goes on, and who waited runs where he may."""
        before, self.runners = self.runners, self._make_runners(queues)
        waiting: list[Application] = []
        for app in sorted(self.apps.values(), key=lambda one: one.number):
            if app.over:
                continue
            if not before.waits(app):
                self.runners.count(app, 1)
                continue
            leaf = queues[int(now_at[app.leaf.slot])]
            assert isinstance(leaf, Leaf)
            waiting.append(app)
            app.leaf = leaf
        for app in waiting:
            if self.runners.add(app):
                self.let_run(app)

    def _carry(self, old: Leaf, new: Leaf) -> None:
        """Count what an earlier form of a leaf queue held in this one, and in those above it."""
        calc = self.rules.calculator
        for at, was in enumerate(old.by):
            new.by[at].am_used = was.am_used
            queue: Queue | None = new
            while queue is not None:
                part = queue.by[at]
                part.used = calc.add(part.used, was.used)
                part.reserved = calc.add(part.reserved, was.reserved)
                part.pending = calc.add(part.pending, was.pending)
                queue = queue.parent

    def partition(self, label: str) -> Partition:
        """Return the partition of a label; one that no queue names is open to all of them."""
        known = self.partition_of.get(label)
        if known is not None:
            return known
        none = self.rules.calculator.none
        made = Partition(len(self.partitions), label, none, exclusive=True)
        self.partitions.append(made)
        self.partition_of[label] = made
        for queue in self.queues:
            queue.by.append(InPartition(none, 1.0 if queue.parent is None else 0.0, 1.0))
            if queue.labels is not None:
                queue.labels |= {label}
            if isinstance(queue, Leaf):
                queue.active_used.append(none)
                queue.ratio.append(0.0)
                for user in queue.users.values():
                    user.used.append(none)
                    user.am_used.append(none)
                    user.ratio.append(0.0)
        for app in self.apps.values():
            for amounts in (app.pending, app.reserved, app.used):
                amounts.append(none)
        return made

    # -- nodes -------------------------------------------------------------------------------------

    def set_machine(self, slot: int, name: str, rack: str, label: str) -> Machine:
        """Return a node, known from now on."""
        machine = self.machines.get(slot)
        if machine is None:
            machine = Machine(slot, name, rack, self.rules.calculator.none)
            self.machines[slot] = machine
        machine.name, machine.rack = name, rack
        at = self.partition(label).at
        if machine.up and at != machine.partition:
            # What it has leaves the partition that it was in.
            self.set_capacity(machine, machine.total, machine.free, up=False)
        machine.partition = at
        return machine

    def set_capacity(self, machine: Machine, total: Amount, free: Amount, *, up: bool) -> None:
        """Set what a node has, what of it is free, and whether it is in service."""
        calc, partition = self.rules.calculator, self.partitions[machine.partition]
        if machine.up:
            partition.total = calc.sub(partition.total, machine.total)
            self.cluster = calc.sub(self.cluster, machine.total)
            self.nodes -= 1
        if machine.reservation is not None and not up:
            self.unreserve(machine.reservation)
        machine.total, machine.free, machine.up = total, free, up
        if up:
            partition.total = calc.add(partition.total, total)
            self.cluster = calc.add(self.cluster, total)
            self.nodes += 1
        self._spread()

    def _spread(self, tops: Sequence[Queue] = ()) -> None:
        """Bring what depends on the cluster's size up to date (updateClusterResource).

        Only below `tops` one by one, as if each had all of the cluster; by default below the root.
        """
        rules = self.rules
        for queue in self.queues:
            for partition in self.partitions:
                limits.size(rules, queue, partition, self.cluster)
                limits.use_share(rules, queue.by[partition.at], partition)
        for top in tops or self.queues[:1]:
            self._spread_limits(top, self.cluster)
            self._refresh(_below(top))

    def _refresh(self, queues: Sequence[Queue]) -> None:
        rules = self.rules
        for queue in queues:
            if isinstance(queue, Leaf):
                self._refresh_users(queue)
        for queue in queues:
            if isinstance(queue, Leaf):
                limits.activate(rules, queue, self.partitions, self.cluster)
                queue.version += 1
                if queue.active:
                    limits.user_limit(rules, queue, self.partitions[0])
                for app in queue.active:
                    app.told = True

    def _spread_limits(self, queue: Queue, limit: Amount) -> None:
        calc = self.rules.calculator
        if isinstance(queue, Leaf):
            limits.set_headroom_limit(self.rules, queue, self.cluster, limit)
            queue.current_limit = queue.headroom_limit
            return
        most = queue.by[0].most
        if calc.compare(self.cluster, limit, most) > 0:
            limit = most
        for child in queue.children:
            own = limits.child_limit(
                self.rules, queue, child, self.partitions[0], self.cluster, limit
            )
            self._spread_limits(child, own)

    def _refresh_users(self, leaf: Leaf) -> None:
        calc = self.rules.calculator
        for partition in self.partitions:
            at, consumed = partition.at, 0.0
            for user in leaf.users.values():
                user.ratio[at] = calc.ratio(user.used[at], partition.total)
                consumed = single(consumed + user.ratio[at])
            leaf.ratio[at] = consumed

    # -- applications ------------------------------------------------------------------------------

    def open_app(
        self, slot: int, leaf: Leaf, user: str, weight: float, priority: int, number: int
    ) -> Application:
        """Return a new application, which waits for its master to be allowed."""
        none, known = self.rules.calculator.none, leaf.users.get(user)
        if known is None:
            known = leaf.users[user] = User(user, weight, none, len(self.partitions))
        known.known = True
        known.apps += 1
        app = Application(slot, leaf, known, none, len(self.partitions))
        app.priority, app.number = priority, number
        app.master = self.rules.minimum_allocation
        self.apps[slot] = app
        if self.runners.add(app):
            self._submit(app)
        return app

    def _submit(self, app: Application) -> None:
        app.user.pending_apps += 1
        app.leaf.waiting.append(app)
        app.leaf.waiting.sort(key=lambda one: (-one.priority, one.number))

    def let_run(self, app: Application) -> None:
        """Let an application take part that waited for others to end."""
        app.user.known = True
        self._submit(app)
        self.start(app)

    def start(self, app: Application) -> None:
        """Let an application take part if its queue's limits allow its master now.

        One that waits for others to end does not make the queue look at its limits again, as there
        (AbstractLeafQueue.addApplicationAttempt).
        """
        if not self.runners.waits(app):
            self._activate(app.leaf)

    def _activate(self, leaf: Leaf) -> None:
        if self.rules.calculator.positive(self.cluster):
            limits.activate(self.rules, leaf, self.partitions, self.cluster)

    def takes_part(self, app: Application) -> bool:
        """Return whether an application gets containers, now or once limits allow it."""
        return app in app.leaf.active or app in app.leaf.waiting or self.runners.waits(app)

    def close_app(self, app: Application) -> None:
        """Forget an application that holds nothing any more."""
        self.leave(app)
        del self.apps[app.slot]
        app.user.apps -= 1
        if not app.user.apps:
            del app.leaf.users[app.user.name]

    def leave(self, app: Application) -> None:
        """Have an application end with the node's match, or before another one's (`let_go`).

        YARN removes an attempt by an event that follows the heartbeat which told of its end.
        """
        if self.freed_at < 0:
            self.end_app(app)
        elif not app.leaves:
            app.leaves = True
            self.left.append((self.freed_at, app))

    def let_go(self, before: int | None = None) -> None:
        """End applications that left, but `before` a node is matched not those that it told of."""
        left, self.left = self.left, []
        for at, app in left:
            if at == before:
                self.left.append((at, app))
            else:
                self.end_app(app)

    def end_app(self, app: Application) -> None:
        """Let an application take part no longer; nodes still have containers that it held."""
        if app.over:
            return
        app.over = True
        for machine in list(self.machines.values()):
            kept = machine.reservation
            if kept is not None and kept.request.app is app:
                self.unreserve(kept)
        for request in list(app.requests):
            self.set_count(request, 0)
        calc, leaf, user, at = self.rules.calculator, app.leaf, app.user, app.master_partition
        user.known = True
        if app.active:
            leaf.active.remove(app)
            user.active_apps -= 1
            leaf.by[at].am_used = calc.sub(leaf.by[at].am_used, app.master)
            user.am_used[at] = calc.sub(user.am_used[at], app.master)
        else:
            if not self.runners.waits(app):
                leaf.waiting.remove(app)
            # One that waited for others to end was never counted, and is taken off all the same.
            user.pending_apps -= 1
        if user.active_apps + user.pending_apps == 0:
            user.forget(calc.none, len(self.partitions))
            self._weigh(leaf)
        for serial in [serial for serial, one in self.of_ask.items() if one.app is app]:
            del self.of_ask[serial]
        self._activate(leaf)
        for one in self.runners.remove(app):
            self.let_run(one)

    def _weigh(self, leaf: Leaf) -> None:
        weight = 0.0
        for user in leaf.users.values():
            if user.counted:
                weight = single(weight + user.weight)
        leaf.active_weight = weight

    def _wants(self, app: Application) -> None:
        """Note that an application has something pending (activateApplication)."""
        leaf, user = app.leaf, app.user
        if user.known and user.active_apps <= 0:
            return
        fresh = not user.asking
        user.asking.add(app.slot)
        if fresh:
            user.known = True
            self._moved(leaf, user, counted=True)

    def _wants_nothing(self, app: Application) -> None:
        leaf, user = app.leaf, app.user
        if app.slot in user.asking:
            user.asking.discard(app.slot)
            if not user.asking:
                self._moved(leaf, user, counted=False)

    def _moved(self, leaf: Leaf, user: User, *, counted: bool) -> None:
        """Count a user's use among those of active users, or no longer."""
        calc = self.rules.calculator
        leaf.version += 1
        if user.counted == counted:
            return
        user.counted = counted
        self._weigh(leaf)
        for at, used in enumerate(user.used):
            change = calc.add if counted else calc.sub
            leaf.active_used[at] = change(leaf.active_used[at], used)

    # -- requests ----------------------------------------------------------------------------------

    def set_count(self, request: Request, count: int) -> None:
        """Set how many containers a request wants now."""
        calc, app, before = self.rules.calculator, request.app, request.count
        request.count = count
        at = self.partition(request.partition).at
        change = calc.times(request.amount, count - before)
        app.pending[at] = calc.add(app.pending[at], change)
        queue: Queue | None = app.leaf
        while queue is not None:
            queue.by[at].pending = calc.add(queue.by[at].pending, change)
            queue = queue.parent
        if count > 0:
            app.partitions.add(at)
        if count > 0 and before <= 0:
            if app.rekeyed:
                app.requests.append(request)
                app.requests.sort(key=_key)
                app.rekeyed = False
            else:
                insort(app.requests, request, key=_key)
            self._wants(app)
        elif count <= 0 < before:
            app.requests.remove(request)
            if not app.requests:
                self._wants_nothing(app)

    # -- amounts -----------------------------------------------------------------------------------

    def use(self, app: Application, at: int, amount: Amount) -> None:
        """Count an amount as used by an application's queues and user; below 0: as freed."""
        rules, calc = self.rules, self.rules.calculator
        partition, leaf, user = self.partitions[at], app.leaf, app.user
        queue: Queue | None = leaf
        while queue is not None:
            part = queue.by[at]
            part.used = calc.add(part.used, amount)
            limits.use_share(rules, part, partition)
            queue = queue.parent
        user.known = True
        user.used[at] = calc.add(user.used[at], amount)
        if user.counted:
            leaf.active_used[at] = calc.add(leaf.active_used[at], amount)
        ratio = calc.ratio(user.used[at], partition.total)
        delta = single(ratio - user.ratio[at])
        user.ratio[at] = ratio
        leaf.ratio[at] = single(leaf.ratio[at] + delta)
        leaf.version += 1

    def hold(
        self, machine: Machine, app: Application | None, amount: Amount, *, kept: bool = False
    ) -> None:
        """Count a container on a node; below 0: one that ended; `kept`: it is used already."""
        calc = self.rules.calculator
        machine.free = calc.sub(machine.free, amount)
        if app is not None:
            app.used[machine.partition] = calc.add(app.used[machine.partition], amount)
            if not kept:
                self.use(app, machine.partition, amount)
                app.unordered = True

    def reserve(self, machine: Machine, request: Request) -> None:
        """Keep a node for a request; what is kept counts as used."""
        app, amount, at = request.app, request.amount, machine.partition
        calc = self.rules.calculator
        machine.reservation = request.reserved[machine.slot] = Reservation(
            machine, request, amount, self._next_made()
        )
        app.reserved[at] = calc.add(app.reserved[at], amount)
        request.reserved_again = 0
        app.unordered = True
        self.use(app, at, amount)
        self._count_reserved(app, at, amount)

    def number(self, app: Application, fulfilled: Reservation | None) -> None:
        """Give a container that was granted its number, or that of its reservation."""
        app.made.append(self._next_made() if fulfilled is None else fulfilled.made)
        if fulfilled is not None:
            app.fulfilled.add(fulfilled.made)

    def _next_made(self) -> int:
        self._made += 1
        return self._made

    def release(self, machine: Machine, app: Application, amount: Amount) -> None:
        """Count a container as used no longer, while its node still runs it."""
        calc, at = self.rules.calculator, machine.partition
        less = calc.sub(calc.none, amount)
        app.used[at] = calc.add(app.used[at], less)
        self.use(app, at, less)
        app.unordered = True

    def unreserve(self, kept: Reservation, *, fulfilled: bool = False) -> None:
        """Keep a node no longer; `fulfilled`: what it counted as used stays, as a container."""
        calc, request = self.rules.calculator, kept.request
        app, at = request.app, kept.node.partition
        kept.node.reservation = None
        request.reserved.pop(kept.node.slot, None)
        request.reserved_again = 0
        less = calc.sub(calc.none, kept.amount)
        app.reserved[at] = calc.add(app.reserved[at], less)
        self._count_reserved(app, at, less)
        if not fulfilled:
            self.use(app, at, less)
            app.unordered = True

    def _count_reserved(self, app: Application, at: int, amount: Amount) -> None:
        calc = self.rules.calculator
        queue: Queue | None = app.leaf
        while queue is not None:
            queue.by[at].reserved = calc.add(queue.by[at].reserved, amount)
            queue = queue.parent


def _beside_what_was_made(before: list[Queue], queues: list[Queue], now_at: Ints) -> list[Queue]:
    """Return the queues below which others were made or went; none where more than that changed."""
    kept = {int(at) for at in now_at if at >= 0}
    new = [queue for queue in queues if queue.slot not in kept]
    gone = [queue for queue in before if now_at[queue.slot] < 0]
    if not all(queue.made for queue in (*new, *gone)):
        return []
    above = [one.parent for one in new]
    above += [
        queues[int(now_at[one.parent.slot])]
        for one in gone
        if one.parent is not None and now_at[one.parent.slot] >= 0
    ]
    return list(dict.fromkeys(queue for queue in above if queue is not None))


def _below(queue: Queue) -> list[Queue]:
    return [queue, *(one for child in queue.children for one in _below(child))]
