"""Preemption: containers are taken back for queues below their guarantee, and for priority.

After YARN's ProportionalCapacityPreemptionPolicy, with an eye on nodes. A round looks at the asks
that have a claim: those of a queue that holds less than its guarantee (and only up to it) and,
where switched on, those of an application before others of lower priority in its queue. Before
them go masters that wait for room in a queue below its guarantee: until one runs, its application
asks for nothing.
What does not fit beside the containers that are ending anyway gets the node where the least has to
go. That node is kept for it, its victims' masters are told, and what has not ended after the grace
period is stopped: its outcome is PREEMPTED, which counts against nobody.

A queue gives something up only while it holds more than its guarantee, and nothing within the dead
zone above it; the last container may take it below. What is taken must bring the queues nearer to
their guarantees: the sum over queues of what each lacks, as a part of its guarantee, falls with
every container that is taken for another queue. So nobody takes back what was just taken from him,
and a queue whose guarantee is less than one container gets one, also from a queue that holds a
little less than its own.
Most preemptable are what was chosen before, then plain tasks before gangs, then the application of
the lowest priority, then what loses least work: its time since its start, or since its last
checkpoint (`Stage.checkpoint_s`), times what it holds. A round goes for `natural` of what
an ask lacks, at least one container, as some room comes by itself; masters are never taken. A gang
starts as a whole, so all that it lacks goes, and nothing that it can do without.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from math import ceil

import numpy as np

from rm.containers import count_master, order_stop
from rm.ledger.asks import AskEntry
from rm.ledger.columns import Bools
from rm.match.filter_kernels import fits
from rm.match.protocol import Held, PreemptionTerms
from rm.placing import gangs
from rm.placing.allocation import admitted_masters, as_ask
from rm.placing.feasible import usable
from rm.placing.gang_room import Need, pack
from rm.placing.hosting import masters_may_grow, passes
from rm.state.books import Books
from rm.state.lifecycle import AttemptState, RmContainerState
from rm.state.records import Attempt, Holding
from weft.model.dag import Floats
from weft.model.resources import TOLERANCE
from weft.protocol.facts import PreemptionChosen
from weft.protocol.messages import Preemption

# One round looks at so many asks.
_ROUND_ASKS_MAX = 32
# A container that is stopped has ended after so many heartbeats.
_STOP_HEARTBEATS = 2
_ASK_NODES_MAX = 64


def look(books: Books) -> None:
    """Make one round: choose victims, tell, reserve nodes, and stop those told in time."""
    round_ = _Round(books)
    round_.choose()
    _spare(books, round_)
    for number, (holding, serial) in round_.chosen.items():
        if number not in books.marks:
            _mark(books, holding, serial)
        if books.marks[number][0] <= books.now * (1 + 1e-12):
            holding.preempted = True
            order_stop(books, holding)
            del books.marks[number]
    _keep(books, round_.kept)


def ask_policy(books: Books) -> None:
    """Let a policy choose that preempts by its own rules; tell masters, and stop what goes now."""
    settings = books.settings
    terms = PreemptionTerms(
        settings.preemption_intra_queue,
        settings.preemption_natural,
        settings.preemption_round_max,
        settings.preemption_dead_zone,
        settings.preemption_grace_s,
    )
    told, killed = books.matcher.preempt(books.view, _held_by(books), terms, books.now)
    for number in told:
        holding = books.holdings.get(number)
        if holding is not None:
            _mark(books, holding, -1)
    for number in killed:
        holding = books.holdings.get(number)
        if holding is not None:
            holding.preempted = True
            order_stop(books, holding)
            books.matching.changed()
    for number in [n for n in books.marks if n in killed or n not in books.holdings]:
        del books.marks[number]


def _held_by(books: Books) -> Callable[[int], Iterator[Held]]:
    def held(slot: int) -> Iterator[Held]:
        app = books.app_at[slot]
        attempt = None if app is None else app.attempt
        for run in attempt.holdings.once() if attempt is not None else ():
            if attempt is None or run.state is RmContainerState.STOPPING:
                continue
            entry = None if attempt.master is run else run.entry
            if entry is None and attempt.master is not run:
                continue
            for number in range(run.container_id, run.container_id + run.count):
                nth = attempt.next_number - (number - attempt.id_before)
                yield Held(number, nth, run.node.slot, run.vector, entry)

    return held


def _spare(books: Books, round_: "_Round") -> None:
    """Unmark containers that need not go any more, and those that ended."""
    for number in [n for n in books.marks if n not in round_.chosen]:
        del books.marks[number]


def _mark(books: Books, holding: Holding, serial: int) -> None:
    """Choose a container: its master is told until when it has."""
    by_s = books.now + books.settings.preemption_grace_s
    number, attempt = holding.container_id, holding.attempt
    books.marks[number] = (by_s, serial)
    if attempt is None:
        return
    if attempt.state is AttemptState.RUNNING:
        attempt.outbox.put((number, -1), Preemption(number, by_s))
        books.owe_attempt(attempt)
    queue = books.queues.paths[attempt.app.queue]
    books.note(PreemptionChosen(number, holding.node.node_id, queue, by_s))


def _keep(books: Books, kept: dict[int, int]) -> None:
    """Keep nodes for the asks that something is preempted for, and no others."""
    ledger = books.ledger
    for slot, serial in books.claimed.items():
        if kept.get(slot) != serial and ledger.unreserve([slot], serial):
            books.matching.changed()
    for slot, serial in kept.items():
        if ledger.nodes.reserved[slot] != serial:
            ledger.reserve([slot], serial)
            books.matching.changed()
    books.claimed = kept


class _Round:
    """What one round knows and has chosen so far."""

    def __init__(self, books: Books) -> None:
        self.books = books
        n = books.ledger.node_count
        # Each chosen container has the ask for which it goes.
        self.chosen: dict[int, tuple[Holding, int]] = {}
        # Each node slot that is kept has the ask that it is kept for.
        self.kept: dict[int, int] = {}
        self.free = np.array(books.ledger.nodes.available[:n])
        # It is without what is ending.
        self.held = np.array(books.ledger.by_queue.held)
        self.total = np.where(books.ledger.total > 0, books.ledger.total, np.inf)
        self.victims: dict[int, list[Holding]] = {}
        self.share_left = books.settings.preemption_round_max
        for slot, node in enumerate(books.node_at):
            for holding in node.holdings.values():
                if holding.state is RmContainerState.STOPPING or self._ends_first(holding):
                    self._leaves(holding)
                elif _may_go(holding):
                    self.victims.setdefault(slot, []).append(holding)
        self.held_at_start = self.held.copy()
        for found in self.victims.values():
            found.sort(key=self._last)

    def _ends_first(self, holding: Holding) -> bool:
        """Return whether a task is expected to end by itself before a stopped one would.

        In YARN's pace its node hears of that with its next heartbeat, and tells with the one after.
        """
        now, settings = self.books.now, self.books.settings
        takes_s = 0.0 if settings.prompt else _STOP_HEARTBEATS * settings.heartbeat_s
        return holding.entry is not None and now < holding.end_s <= now + takes_s

    def choose(self) -> None:
        """Look at what has a claim: waiting masters, then asks, the neediest queue's first."""
        masters = self.books.master_usage.copy()
        for attempt in islice(self._masters(), _ROUND_ASKS_MAX):
            if self._serve_master(attempt):
                # The next one finds this one started.
                count_master(self.books, attempt.app.queue, attempt.demand)
        self.books.master_usage[:] = masters
        for entry in islice(self._claims(), _ROUND_ASKS_MAX):
            if entry.ask.gang:
                self._serve_gang(entry)
            else:
                self._serve(entry)

    def _masters(self) -> Iterator[Attempt]:
        """Yield waiting masters that only room keeps off, the neediest queue's first."""
        books = self.books
        if not books.waiting or not books.settings.preemption:
            return
        admitted = [one for _, one in admitted_masters(books, set())]
        for attempt in sorted(admitted, key=lambda one: self._used(one.app.queue)):
            # What was chosen for the masters before counts as well.
            if attempt.app.slot >= 0 and masters_may_grow(books, attempt):
                yield attempt

    def _serve_master(self, attempt: Attempt) -> bool:
        """Make room for one master if its queue is guaranteed it; return whether there will be."""
        entry, able = as_ask(self.books, attempt)
        if not self._below(entry) or not self._most(entry):
            return False
        return self._make_room(entry, able & self._usable(entry, entry.serial))

    def _claims(self) -> Iterator[AskEntry]:
        books, apps = self.books, self.books.ledger.apps
        if not books.rows.live:
            return
        entries = [e for e in books.rows.entries if e is not None]
        entries.sort(
            key=lambda e: (
                self._used(int(apps.queue[e.app])),
                -apps.priority[e.app],
                apps.order[e.app],
                -e.ask.pri_score,
                e.serial,
            )
        )
        gangs_seen = set()
        for entry in entries:
            if entry.ask.gang:
                if (entry.app, entry.ask.stage) in gangs_seen:
                    continue
                gangs_seen.add((entry.app, entry.ask.stage))
            if self._below(entry) or self._outranks(entry):
                yield entry

    def _below(self, entry: AskEntry) -> bool:
        """Return whether its queue holds less than it is guaranteed."""
        leaf = int(self.books.ledger.apps.queue[entry.app])
        return self.books.settings.preemption and self._used(leaf) < 1.0 - TOLERANCE

    def _outranks(self, entry: AskEntry) -> bool:
        """Return whether priority inside the queue counts, and others hold something there."""
        apps, n = self.books.ledger.apps, self.books.ledger.app_slots
        if not self.books.settings.preemption_intra_queue:
            return False
        lower = apps.priority[:n] < apps.priority[entry.app]
        same = apps.queue[:n] == apps.queue[entry.app]
        return bool((apps.active[:n] & lower & same & (apps.containers[:n] > 1)).any())

    # -- one ask -----------------------------------------------------------------------------------

    def _serve(self, entry: AskEntry) -> None:
        if not gangs.within_limits(self.books, entry.app, entry.demand):
            return
        self._make_room(entry, self._usable(entry, entry.serial))

    def _make_room(self, entry: AskEntry, usable: Bools) -> bool:
        """Choose what has to go for an ask, the least first; return whether all will have room.

        Only nodes that it may use are looked at.
        """
        books, demand = self.books, entry.demand
        lacking = self._place(entry, usable, min(entry.pending, self._most(entry)))
        fresh = max(1, ceil(books.settings.preemption_natural * lacking))
        lack = np.max((demand - self.free) / np.maximum(self._capacity(), 1e-9), axis=1)
        order = np.argsort(lack, kind="stable").tolist()
        near = [slot for slot in order if usable[slot] and slot in self.victims][:_ASK_NODES_MAX]
        ways = ((self._way(slot, entry), slot) for slot in near)
        found = [(self._lost(way), self._cost(way), slot) for way, slot in ways if way is not None]
        for _, _, slot in sorted(found):
            while lacking > 0:
                way = self._way(slot, entry)
                if way is None:
                    break
                cost = self._cost(way)
                if cost > 0:
                    if not fresh or (cost > self.share_left and self.chosen):
                        return False
                    fresh -= 1
                    self.share_left -= cost
                for holding in way:
                    self._choose(holding, entry.serial)
                self._take(slot, entry)
                self.kept[slot] = entry.serial
                lacking -= 1
        return lacking <= 0

    def _place(self, entry: AskEntry, usable: Bools, count: int) -> int:
        """Count what has room, or will have when what was stopped has ended; return the rest."""
        claimed = self.books.claimed
        slots = np.flatnonzero(usable).tolist()
        for slot in sorted(slots, key=lambda slot: claimed.get(slot) != entry.serial):
            while count and self._fits(slot, entry.demand):
                self._take(slot, entry)
                count -= 1
                if claimed.get(slot) == entry.serial:
                    self.kept[slot] = entry.serial
        return count

    def _way(self, slot: int, entry: AskEntry) -> list[Holding] | None:
        """Return the containers of a node that must go for one more to fit; None if it cannot."""
        lack = entry.demand - self.free[slot] - TOLERANCE * self._capacity()[slot]
        taken: list[Holding] = []
        held: dict[int, Floats] = {}
        for holding in self.victims.get(slot, ()):
            if (lack <= 0).all():
                break
            if holding.container_id in self.chosen or not (holding.demand[lack > 0] > 0).any():
                continue
            if self._allowed(holding, entry, held):
                taken.append(holding)
                lack = lack - holding.demand
        if not taken or (lack > 0).any():
            return None
        return taken

    def _allowed(self, holding: Holding, entry: AskEntry, held: dict[int, Floats]) -> bool:
        """Return whether a container may be taken for an ask.

        `held` follows what its node gives up.
        """
        books = self.books
        assert holding.attempt is not None
        own, apps = holding.attempt.app, books.ledger.apps
        leaf = int(apps.queue[entry.app])
        if own.queue == leaf:
            return books.settings.preemption_intra_queue and own.priority < int(
                apps.priority[entry.app]
            )
        if not self._below(entry):
            return False
        now = held.get(own.queue, self.held[own.queue])
        zone = books.settings.preemption_dead_zone
        first = passes(np.zeros_like(now), entry.demand, self._guarantee(leaf))
        least, before = (1.0 - zone, 1.0 - zone) if first else (1.0, 1.0 + zone)
        if self._ratio(own.queue, self.held_at_start[own.queue]) <= before + TOLERANCE:
            return False
        if self._ratio(own.queue, now) <= least + TOLERANCE:
            return False
        left = now - holding.demand
        held[own.queue] = left
        lost = sum(
            self._lacks(at, some) - self._lacks(at, self.held[at]) for at, some in held.items()
        )
        if lost < self._gain(leaf, entry.demand) - TOLERANCE:
            return True
        held[own.queue] = now
        return False

    def _guarantee(self, leaf: int) -> Floats:
        """Return what a queue is guaranteed, (d,)."""
        return np.asarray(self.books.queues.capacity[leaf] * self.books.ledger.total)

    def _gain(self, leaf: int, demand: Floats) -> float:
        """Return by how much less of its guarantee a queue lacks with one more demand (d,)."""
        held = self.held[leaf]
        return self._lacks(leaf, held) - self._lacks(leaf, held + demand)

    def _lacks(self, leaf: int, held: Floats) -> float:
        """Return what a queue that holds so much (d,) lacks, as a part of its guarantee."""
        return max(0.0, 1.0 - self._ratio(leaf, held))

    def _ratio(self, leaf: int, held: Floats) -> float:
        """Return an amount (d,) as a dominant share over a queue's guarantee."""
        capacity = max(float(self.books.queues.capacity[leaf]), 1e-9)
        return float((held / self.total).max()) / capacity

    def _serve_gang(self, entry: AskEntry) -> None:
        """Choose what has to go so that a gang can start as a whole, and reserve its nodes."""
        books = self.books
        gang = gangs.of_entry(books, entry)
        need = gangs.need_of(books, gang)
        if not gangs.within_limits(books, gang.app, need.total):
            return
        leaf = int(books.ledger.apps.queue[gang.app])
        guarantee = self._guarantee(leaf)
        if passes(self.held[leaf], need.total, guarantee) and not self._outranks(entry):
            return
        capacity = self._capacity()
        if pack(need, self.free, capacity) is not None:
            return
        kept = books.matching.reserved.get(gang.serial)
        slots = kept[1] if kept is not None else gangs.nodes_for(books, gang, need)
        if not slots or len(slots) > gangs.nodes_max(books):
            return
        nodes: Bools = np.zeros(len(capacity), dtype=np.bool_)
        nodes[slots] = True
        taken: list[Holding] = []
        free = self.free.copy()
        held: dict[int, Floats] = {}
        for slot in slots:
            for holding in self.victims.get(slot, ()):
                if holding.container_id not in self.chosen and self._allowed(holding, entry, held):
                    taken.append(holding)
                    free[slot] += holding.demand
            if pack(need.on(nodes), free, capacity) is not None:
                break
        else:
            return
        if kept is None:
            gangs.keep(books, gang.serial, slots)
        for holding in self._needed(taken, need.on(nodes), free):
            self._choose(holding, gang.serial)

    def _needed(self, taken: list[Holding], need: Need, free: Floats) -> list[Holding]:
        """Return those of `taken` without which a gang has no room; `free` (n, d) is with all."""
        capacity = self._capacity()
        needed: list[Holding] = []
        # The least preemptable are spared first.
        for holding in sorted(taken, key=self._last, reverse=True):
            free[holding.node.slot] -= holding.demand
            if pack(need, free, capacity) is None:
                free[holding.node.slot] += holding.demand
                needed.append(holding)
        return needed

    # -- the books of the round --------------------------------------------------------------------

    def _choose(self, holding: Holding, serial: int) -> None:
        self.chosen[holding.container_id] = (holding, serial)
        self._leaves(holding)

    def _leaves(self, holding: Holding) -> None:
        self.free[holding.node.slot] += holding.demand
        if holding.attempt is not None:
            for queue in self.books.queues.chains[holding.attempt.app.queue]:
                self.held[queue] -= holding.demand

    def _take(self, slot: int, entry: AskEntry) -> None:
        self.free[slot] -= entry.demand
        for queue in self.books.queues.chains[int(self.books.ledger.apps.queue[entry.app])]:
            self.held[queue] += entry.demand

    def _fits(self, slot: int, demand: Floats) -> bool:
        return fits(demand, self.free[slot], self._capacity()[slot])

    def _most(self, entry: AskEntry) -> int:
        """Return how many containers of an ask its queue may claim.

        It may claim until it has its guarantee, or any number where the ask outranks others of its
        queue.
        """
        if self._outranks(entry):
            return entry.pending
        leaf = int(self.books.ledger.apps.queue[entry.app])
        need = entry.demand > 0
        left = self.books.queues.capacity[leaf] * self.books.ledger.total - self.held[leaf]
        if not need.any():
            return 0
        return max(0, int(np.ceil((left[need] / entry.demand[need]).min() - 1e-6)))

    def _usable(self, entry: AskEntry, serial: int) -> Bools:
        found = usable(self.books, entry, serial)
        for slot, owner in self.kept.items():
            found[slot] &= owner == serial
        return found

    def _capacity(self) -> Floats:
        return np.asarray(self.books.ledger.nodes.capacity[: self.books.ledger.node_count])

    def _used(self, leaf: int) -> float:
        """Return what a queue holds over its guarantee."""
        return self._ratio(leaf, self.held[leaf])

    def _cost(self, holdings: list[Holding]) -> float:
        """Return what goes that was not chosen before, as a dominant share of the cluster."""
        fresh = [h.demand for h in holdings if h.container_id not in self.books.marks]
        return float((np.sum(fresh, axis=0) / self.total).max()) if fresh else 0.0

    def _lost(self, holdings: list[Holding]) -> float:
        """Return the work that goes with containers not chosen before: dominant share x s."""
        fresh = [h for h in holdings if h.container_id not in self.books.marks]
        return sum(self._work_of(holding) for holding in fresh)

    def _work_of(self, holding: Holding) -> float:
        """Return what a container did since its start, or its stage's last checkpoint."""
        done_s = self.books.now - holding.started_s
        if holding.attempt is not None and holding.stage >= 0:
            stages = holding.attempt.app.job.stages
            every_s = stages[holding.stage].checkpoint_s if holding.stage < len(stages) else 0.0
            if every_s > 0.0:
                done_s %= every_s
        return done_s * float((holding.demand / self.total).max())

    def _last(self, holding: Holding) -> tuple[object, ...]:
        """Return the sort key that has the most preemptable containers of a node first."""
        assert holding.attempt is not None
        app = holding.attempt.app
        gang = holding.entry is not None and holding.entry.ask.gang
        chosen = holding.container_id in self.books.marks
        return (
            not chosen,
            gang,
            app.priority,
            round(self._work_of(holding), 9),
            -app.app_id,
            -holding.container_id,
        )


def _may_go(holding: Holding) -> bool:
    attempt = holding.attempt
    return attempt is not None and attempt.master is not holding and attempt.app.slot >= 0
