"""What YARN's schedulers are as matchers: they keep those schedulers' own books beside Weft's.

Other matchers look at the view and answer. This one is told of every change (`rm.ledger.watching`)
and remembers what it decided: opportunities missed, nodes reserved, limits in single precision.
Asks of one application are served strictly by `pri_score`, as requests are by YARN's priority.
"""

from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

from rm.ledger.asks import AskEntry
from rm.ledger.view import View
from rm.match.protocol import BaseMatcher, Held, Match, Placement, Scores
from rm.match.yarn import limits
from rm.match.yarn.amounts import Amount, dominant, memory
from rm.match.yarn.books import NONE, Application, Leaf, Machine, Queue, Request
from rm.match.yarn.decisions import Taken
from rm.match.yarn.preemption import Live
from rm.match.yarn.rules import Rules
from rm.match.yarn.state import State
from rm.match.yarn.tree import labels_of, queues_of
from rm.match.yarn.walk import Walk
from weft.model.dag import Floats, Ints
from weft.model.errors import InputError, InvariantError
from weft.model.resources import ResourceTypes, Vector

# No setting limits a resource type to less.
_UNLIMITED = 2**62
_PLACES: tuple[Scores, ...] = tuple((("place", float(place)),) for place in range(3))


@dataclass(frozen=True, slots=True)
class Sizes:
    """What containers are granted, in steps, from the least to the most; by resource type."""

    least: Mapping[str, int]
    most: Mapping[str, int]
    step: Mapping[str, int]


class BooksMatcher(BaseMatcher):
    """Keeps the books of a scheduler of YARN, whose walk decides; `shared` are labels."""

    reserves = True

    def __init__(
        self,
        sizes: Sizes,
        *,
        memory_only: bool,
        shared: str = "",
        master_label: str = "",
        priority_most: int = -1,
    ) -> None:
        self._sizes = sizes
        self._priority_most = priority_most
        self._master_label = master_label
        self.memory_only = memory_only
        self._stopped = False
        self._shared = {one for one in shared.split(",") if one}
        self._view: View | None = None
        self._state: State
        self._walk: Walk
        self._changed_nodes: set[int] = set()
        # Grants are (node, application) slots.
        self._expected: deque[tuple[int, int]] = deque()
        # It is a node's answer, until it is booked.
        self._answered: tuple[int, Match] | None = None

    def _make(self, view: View, rules: Rules, queues: list[Queue], labels: dict[str, bool]) -> None:
        """Set what decides: `_state` and `_walk`."""
        raise NotImplementedError

    # -- what the core asks ------------------------------------------------------------------------

    def normalised(self, types: ResourceTypes, demand: Vector) -> Vector:
        """Return what is granted for a demand: in steps from the minimum to the maximum."""
        found: list[float] = []
        for name, amount in zip(types.names, demand, strict=True):
            if self.memory_only and name != "memory_mb":
                # Resources.createResource does the same.
                found.append(1.0 if name == "vcores" else amount)
                continue
            least, step = self._sizes.least.get(name, 0), self._sizes.step.get(name, 0)
            value = max(round(amount), least)
            value = -(-value // step) * step if step else value
            found.append(float(min(value, self._sizes.most.get(name, _UNLIMITED))))
        return tuple(found)

    def wants(self, view: View, node: int) -> bool:
        """Return whether a heartbeat of a node may come to anything, or be counted as missed."""
        state = self._ready(view)
        machine = state.machines.get(node)
        wants = machine is not None and (
            bool(state.left)
            or machine.reservation is not None
            or any(state.rules.calculator.positive(p.pending) for p in state.queues[0].by)
        )
        if not wants:
            state.freed_at = -1
        return wants

    def match(self, view: View, node: int, now: float) -> Match:
        """Return what YARN would assign in the heartbeat of a node."""
        answered = self._answered
        if answered is not None and answered[0] == node:
            return answered[1]
        state = self._ready(view)
        state.let_go(before=node)
        taken = self._decide(state.machines[node])
        state.let_go()
        state.freed_at = -1
        self._expected.extend([(node, one.request.app.slot) for one in taken])
        match = Match(self._placements(view, taken), settled=False) if taken else _NOTHING
        self._answered = node, match
        return match

    def _decide(self, machine: Machine) -> list[Taken]:
        """Return what a node is given."""
        return self._walk.node(machine)

    def would_match(self, view: View, node: int, now: float) -> Match:
        """Return what `match` would, on a copy of the books."""
        self._ready(view)
        walk = deepcopy(self._walk)
        taken = walk.node(walk.state.machines[node])
        return Match(self._placements(view, taken), settled=False)

    def ranked(self, view: View, node: int, now: float, most: int) -> list[Placement]:
        """Return at most so many rows in the order in which a node's room goes to them.

        A copy of the books grants the node to one request after the other, and forgets each.
        """
        self._ready(view)
        walk = self._copied()
        state = walk.state
        calc, machine = state.rules.calculator, state.machines[node]
        machine.free = self._amount(view.types, tuple(view.nodes.available[node].tolist()))
        for request in list(state.of_ask.values()):
            if request.entry is not None and not view.rows.pending[request.entry.row]:
                state.set_count(request, 0)
        found: list[Placement] = []
        while len(found) < most:
            if machine.reservation is not None:
                state.unreserve(machine.reservation)
            taken = [one for one in walk.node(machine) if not one.reserved]
            if not taken:
                break
            first = self._placements(view, taken[:1])[0]
            if first.row >= 0:
                found.append(first)
            for one in taken:
                less = calc.sub(calc.none, one.request.amount)
                state.hold(machine, one.request.app, less)
                state.set_count(one.request, one.request.count + 1)
            state.set_count(taken[0].request, 0)
        return found

    def matched(self, view: View, node: int, match: Match, now: float) -> None:
        """Take back what the core did not grant after all: it grants so many at a time."""
        state = self._state
        self._answered = None
        if not self._expected:
            return
        taken = list(self._expected)
        self._expected.clear()
        for slot, at in taken:
            self._take_back(state, slot, at, match)

    def _take_back(self, state: State, slot: int, at: int, match: Match) -> None:
        """Free what an answer granted that was cut off."""
        app = state.apps.get(at)
        if app is None:
            return
        for request in state.of_ask.values():
            if request.app is app and request.source >= 0:
                less = state.rules.calculator.sub(state.rules.calculator.none, request.amount)
                state.hold(state.machines[slot], app, less)
                app.made.pop()
                state.set_count(request, request.count + 1)
                return

    def _placements(self, view: View, taken: list[Taken]) -> list[Placement]:
        found: list[Placement] = []
        for one in taken:
            request = one.request
            row = -1 - request.app.slot if request.entry is None else request.entry.row
            last = found[-1] if found else None
            if last is not None and last.row == row and last.scores is _PLACES[one.place]:
                found[-1] = Placement(row, last.copies + 1, last.scores, last.overbooked)
            else:
                found.append(Placement(row, 1, _PLACES[one.place], self.memory_only))
        return found

    def applications(self) -> list[Application]:
        """Return the applications that it knows."""
        return list(self._state.apps.values())

    def granted_last(self) -> list[Request]:
        """Return what the last answer granted, container by container, in order."""
        return [one.request for one in self._walk.decided if not one.reserved]

    def kept(self, node: int) -> Request | None:
        """Return the request that a node is kept for."""
        machine = self._state.machines.get(node) if self._view is not None else None
        kept = None if machine is None else machine.reservation
        return None if kept is None else kept.request

    def slack(self, view: View) -> Floats:
        """Return no bound for what YARN's calculator by memory does not look at."""
        # A manager asks for this first, and the policy is told of everything from then on.
        self._ready(view)
        slack = super().slack(view)
        if self.memory_only:
            for r, name in enumerate(view.types.names):
                if name != "memory_mb" and not view.rigid[r]:
                    slack[r] = 1e9
        return slack

    def headroom(self, view: View, app: int) -> Vector | None:
        """Return what an application may still count on, in the cluster's types; None: unknown."""
        state = self._ready(view)
        known = state.apps.get(app)
        if known is None:
            return None
        amount = limits.headroom(state.rules, known, state.partitions)
        if self.memory_only:
            free = view.total - view.by_queue.held[0]
            free[self._memory_at(view.types)] = amount
            return tuple(free.tolist())
        return tuple(map(float, amount))

    # -- what it is told ---------------------------------------------------------------------------

    def app_joined(self, view: View, app: int, now: float) -> None:
        """Put a new application into its leaf queue."""
        state = self._ready(view)
        if app not in state.apps:
            self._open(view, app)

    def app_left(self, view: View, app: int, now: float) -> None:
        """Forget an application."""
        state = self._ready(view)
        known = state.apps.get(app)
        if known is not None:
            state.close_app(known)

    def app_over(self, view: View, app: int) -> None:
        """Let an application take part no longer, as YARN does when its attempt is removed."""
        state = self._ready(view)
        known = state.apps.get(app)
        if known is not None:
            state.leave(known)

    def app_changed(self, view: View, app: int) -> None:
        """Move an application to another queue or place in the line."""
        state = self._ready(view)
        known = state.apps.get(app)
        if known is None:
            return
        queue = state.queues[int(view.apps.queue[app])]
        known.priority = self._priority(view, app)
        if queue is known.leaf:
            for line in (known.leaf.active, known.leaf.waiting):
                line.sort(key=lambda one: (-one.priority, one.number))
            return
        self._moved(view, state, known)

    def _moved(self, view: View, state: State, before: Application) -> None:
        calc = state.rules.calculator
        asked = [(request, request.count) for request in before.requests]
        for at, used in enumerate(before.used):
            state.use(before, at, calc.sub(calc.none, used))
        master, wants, partition = before.master, before.wants_master, before.master_partition
        sources = {serial: one for serial, one in state.of_ask.items() if one.app is before}
        state.close_app(before)
        state.let_go()
        after = self._open(view, before.slot)
        after.master, after.wants_master, after.master_partition = master, wants, partition
        after.used, after.made, after.fulfilled = before.used, before.made, before.fulfilled
        state.start(after)
        for at, used in enumerate(after.used):
            state.use(after, at, used)
        state.of_ask.update(sources)
        for request, count in asked:
            request.app, request.count = after, 0
            state.set_count(request, count)

    def attempt_added(
        self, view: View, app: int, demand: Vector | None, label: str, *, runs: bool = False
    ) -> None:
        """Let an application take part, with a container for its master to come first.

        `demand` None: its master needs none (it runs outside of the cluster). `runs`: it has it.
        """
        state = self._ready(view)
        known = state.apps[app]
        if demand is not None:
            known.master = self._amount(view.types, demand)
            own = label or self._master_label or _default_label(view, known.leaf)
            known.master_partition = state.partition(own).at
        if not known.active:
            state.start(known)
        if demand is not None and not runs:
            request = Request(known, (-2.0, 0), known.master)
            request.partition = state.partitions[known.master_partition].label
            known.wants_master = True
            state.set_count(request, 1)

    def attempt_over(self, view: View, app: int) -> None:
        """Withdraw the container that an application's master still waits for."""
        state = self._ready(view)
        known = state.apps.get(app)
        if known is None:
            return
        known.wants_master = False
        for request in list(known.requests):
            if request.entry is None:
                state.set_count(request, 0)

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Go on with other queues; who asks without a label needs the default one of its queue."""
        state = self._ready(view)
        for label in labels_of(view.queues):
            state.partition(label).exclusive = label not in self._shared
        labels = [partition.label for partition in state.partitions[1:]]
        queues = self._queues(view, state.rules, labels)
        state.change_queues(queues, now_at, partial(_weight_of, view))
        self._answered = None
        for request in state.of_ask.values():
            if request.entry is not None and request.entry.ask.label != request.partition:
                request.written = None
                self._write(view, state, request, request.entry)

    def banned(self, view: View, node: int, app: int, on: bool) -> None:
        """Note whether an application must not use a node."""
        known = self._ready(view).apps.get(app)
        if known is not None:
            (known.banned.add if on else known.banned.discard)(node)

    def node_set(self, node: int) -> None:
        """Look at a node again before the next decision."""
        self._changed_nodes.add(node)

    def held(self, node: int, app: int, demand: Floats, count: int) -> None:
        """Count containers that were booked, or (below 0) freed; its own grants are counted."""
        view = self._view
        if view is None:
            return
        expected = self._expected
        while count > 0 and expected and expected[0] == (node, app):
            expected.popleft()
            count -= 1
        if not count:
            return
        anew = node in self._changed_nodes
        state = self._ready(view)
        calc = state.rules.calculator
        amount = self._amount(view.types, tuple(demand.tolist()))
        less = calc.sub(calc.none, amount)
        if count < 0:
            state.freed_at = node
        holder = state.apps.get(app)
        if self._stopped:
            # Its queue counts it as used no longer since it was ordered to stop.
            self._stopped, holder = False, None
        for _ in range(abs(count)):
            state.hold(state.machines[node], holder, amount if count > 0 else less)
        if anew:
            # What the node had free was read after this was booked, so it is off twice.
            self._changed_nodes.add(node)

    def check(self, view: View) -> None:
        """Raise InvariantError where its nodes or applications have other amounts than the view."""
        if self._view is not view:
            return
        state = self._ready(view)
        for slot, machine in state.machines.items():
            free = self._amount(view.types, tuple(view.nodes.available[slot].tolist()))
            if machine.up and machine.free != free:
                raise InvariantError(
                    f"{self.name} takes node {machine.name} to have {machine.free} free, not {free}"
                )
        for app in state.apps.values():
            if app.requests and not state.takes_part(app):
                raise InvariantError(f"{self.name} leaves out application {app.number}, which asks")

    def stop_ordered(self, view: View, node: int, app: int, demand: Floats) -> None:
        """Count a container as used no longer, as YARN does when it kills one."""
        state = self._ready(view)
        holder = state.apps.get(app)
        if holder is not None:
            amount = self._amount(view.types, tuple(demand.tolist()))
            state.release(state.machines[node], holder, amount)

    def stopped_ends(self) -> None:
        """Free the node alone, next time."""
        self._stopped = True

    def asked(self, entry: AskEntry) -> None:
        """Bring a request up to date with an ask."""
        view = self._view
        if view is None:
            return
        state = self._ready(view)
        request = state.of_ask.get(entry.serial)
        if request is None:
            app = state.apps.get(entry.app)
            if app is None or not entry.pending:
                return
            request = Request(
                app, (-entry.ask.pri_score, entry.ask.ask_id), state.rules.calculator.none
            )
            request.source, request.entry = entry.serial, entry
            state.of_ask[entry.serial] = request
        self._write(view, state, request, entry)

    def _write(self, view: View, state: State, request: Request, entry: AskEntry) -> None:
        # A row that is closed was served or withdrawn, whatever the ask still counts.
        ask, pending = entry.ask, 0 if entry.ask.gang or entry.row < 0 else entry.pending
        label = ask.label or _default_label(view, request.app.leaf)
        if pending == request.count and (not pending or request.written is ask):
            return
        amount = self._amount(view.types, tuple(entry.demand.tolist()))
        if request.count and (amount != request.amount or label != request.partition):
            state.set_count(request, 0)
        request.amount, request.partition, request.written = amount, label, ask
        key = (-ask.pri_score, ask.ask_id)
        if request.count and key != request.key:
            request.app.rekeyed = True
        request.key = key
        if ask.counts:
            names = (*ask.nodes, *[f"/{name}" for name in ask.racks])
            request.places = dict(zip(names, ask.counts, strict=False))
        else:
            racks = [f"/{name}" for name in entry.near[1] or ask.racks]
            request.places = dict.fromkeys((*ask.nodes, *racks), pending)
        request.relax = not ask.strict
        request.relax_racks = not ask.strict or not ask.nodes
        if request.app.leaf.fair == "weighted":
            request.app.unordered = True
        state.set_count(request, pending)

    def _live(self, view: View, app: Application, one: Held) -> Live:
        state, at = self._state, self._state.machines[one.node].partition
        key, asked = (-2.0, 0), app.master_partition
        if one.entry is not None:
            ask = one.entry.ask
            label = ask.label or _default_label(view, app.leaf)
            key, asked = (-ask.pri_score, ask.ask_id), state.partition(label).at
        made = app.made[-one.nth] if 0 < one.nth <= len(app.made) else -one.nth
        amount = self._amount(view.types, one.demand)
        return Live(
            number=one.number,
            app=app.slot,
            node=one.node,
            partition=at,
            amount=amount,
            key=key,
            made=made,
            master=one.entry is None,
            guest=bool(at) and not asked,
            fulfils=made in app.fulfilled,
            asked_partition=asked,
        )

    def _copied(self) -> Walk:
        """Return the walk on a copy of the books, with all that was asked so far taken in."""
        return deepcopy(self._walk)

    # -- inside ------------------------------------------------------------------------------------

    def _queues(self, view: View, rules: Rules, labels: list[str]) -> list[Queue]:
        """Return the queues of the view, each with the amounts that it says.

        Those are the most that a container of it may have, and what it has of nodes by label.
        """
        queues = queues_of(view.queues, rules, labels)
        for queue in queues:
            absolute = view.queues.specs[queue.slot][1].absolute
            for at, label in enumerate(("", *labels)):
                if (amounts := absolute.get(label)) is not None:
                    least = self._named(view, rules, amounts.min)
                    most = self._named(view, rules, amounts.max) if amounts.max else None
                    queue.by[at].said = least, most
                    said = amounts.min
                    queue.by[at].first = -said.get("memory_mb", 0.0), -said.get("vcores", 0.0)
                    above = queue.parent.by[at].said if queue.parent is not None else None
                    if most is None and amounts.min and above is not None:
                        queue.by[at].said = least, above[1]
            said = view.queues.max_allocation[queue.slot]
            if isinstance(queue, Leaf) and said:
                whole = {**self._sizes.most, **said}
                row = tuple([round(whole.get(name, _UNLIMITED)) for name in view.types.names])
                queue.most_asked = row[self._memory_at(view.types)] if self.memory_only else row
        return queues

    def _named(self, view: View, rules: Rules, amounts: Mapping[str, float]) -> Amount:
        row = tuple([amounts.get(name, 0.0) for name in view.types.names])
        at = self._memory_at(view.types)
        return round(row[at]) if self.memory_only else rules.calculator.of(row)

    def _amount(self, types: ResourceTypes, vector: Vector) -> Amount:
        if self.memory_only:
            return round(vector[self._memory_at(types)])
        return self._state.rules.calculator.of(vector)

    def _memory_at(self, types: ResourceTypes) -> int:
        if "memory_mb" not in types.names:
            known = ", ".join(types.names)
            raise InputError("scheduler", f"yarn counts memory_mb; the cluster has {known}")
        return types.names.index("memory_mb")

    def _ready(self, view: View) -> State:
        """Return the books, made anew where the view is another, with all nodes as they are."""
        if self._view is not view:
            self._begin(view)
        if self._changed_nodes:
            for slot in sorted(self._changed_nodes):
                self._set_node(view, slot)
            self._changed_nodes.clear()
        return self._state

    def _begin(self, view: View) -> None:
        types = view.types
        calculator = memory() if self.memory_only else dominant(len(types), self._memory_at(types))
        at = self._memory_at(types)

        def amount(of: Mapping[str, int], other: int) -> Amount:
            row = tuple([of.get(name, other) for name in types.names])
            return row[at] if self.memory_only else row

        rules = Rules(
            calculator,
            amount(self._sizes.least, 0),
            amount(self._sizes.most, _UNLIMITED),
            amount(self._sizes.step, 0),
        )
        names = labels_of(view.queues)
        queues = self._queues(view, rules, names)
        labels = {name: name not in self._shared for name in names}
        self._make(view, rules, queues, labels)
        self._view = view
        self._expected.clear()
        self._changed_nodes = set(range(view.node_count))
        view.watch(self)
        for slot in range(view.app_slots):
            if view.apps.active[slot]:
                self._recall(view, slot)

    def _recall(self, view: View, slot: int) -> None:
        """Take over an application of before: what it holds and asks."""
        state = self._ready(view)
        app = self._open(view, slot)
        state.start(app)
        used = self._amount(view.types, tuple(view.apps.held[slot].tolist()))
        app.used[0] = used
        state.use(app, 0, used)
        for entry in view.rows.entries:
            if entry is not None and entry.app == slot:
                self.asked(entry)

    def _open(self, view: View, slot: int) -> Application:
        queue = self._state.queues[int(view.apps.queue[slot])]
        assert isinstance(queue, Leaf)
        user = view.user_name(slot)
        weight = _weight_of(view, queue, user)
        return self._state.open_app(
            slot, queue, user, weight, self._priority(view, slot), int(view.apps.order[slot])
        )

    def _priority(self, view: View, slot: int) -> int:
        own = int(view.apps.priority[slot])
        return own if self._priority_most < 0 else min(own, self._priority_most)

    def _set_node(self, view: View, slot: int) -> None:
        state, nodes = self._state, view.nodes
        rack = view.rack_names[int(nodes.rack[slot])] if view.rack_names else ""
        bits = int(nodes.labels[slot])
        label = next((name for name, bit in view.label_bits.items() if bit and bits & bit), NONE)
        machine: Machine = state.set_machine(slot, view.node_names[slot], f"/{rack}", label)
        total = self._amount(view.types, tuple(nodes.capacity[slot].tolist()))
        free = self._amount(view.types, tuple(nodes.available[slot].tolist()))
        state.set_capacity(machine, total, free, up=bool(nodes.up[slot]))


def numbers_of(text: str) -> dict[str, int]:
    """Read `ann=3,bob=1`; raises InputError."""
    pairs = [one.rpartition("=") for one in text.split(",") if one.strip()]
    if not all(user.strip() and most.strip().isdecimal() for user, _, most in pairs):
        raise InputError("users_max_running", f"expected ann=3,bob=1, got {text!r}")
    return {user.strip(): int(most) for user, _, most in pairs}


def _weight_of(view: View, leaf: Leaf, user: str) -> float:
    return view.queues.specs[leaf.slot][1].user_weights.get(user, 1.0)


def _default_label(view: View, leaf: Leaf) -> str:
    return view.queues.specs[leaf.slot][1].default_label


_NOTHING = Match([], settled=False)
