"""The judge: what was promised, held against facts. It imports nothing of rm, am and nm.

One walk through the evidence. Of every start: label, black list, strict place, room, limits, whose
turn it was. Over time: no eligible ask beside room, nothing idle beside work, a bound on waits. At
the end: gangs whole, and everybody told how it ended.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from testkit.meetings.evidence import Evidence, Kept
from testkit.meetings.holdings import SLACK, Holdings, Row, label_fits, parting, place_fits, prefers
from weft.model.ids import (
    AppId,
    ContainerId,
    NodeId,
    app_of_attempt,
    app_of_container,
    attempt_of_container,
)
from weft.model.resources import Vector
from weft.protocol.facts import AppChanged, Closed, Placed, PreemptionChosen, TaskStarted
from weft.protocol.messages import AskType, ContainersAsked, Outcome

# Leaves, and what each was granted.
Grants = Sequence[tuple[str, Vector]]
SAME_S = 1e-6
# An eligible ask may wait so many heartbeats beside room.
WAIT_HEARTBEATS_MAX = 2.0
# A container that is stopped has ended after so many heartbeats.
STOP_HEARTBEATS = 2
# For so long nothing may run while an ask waits: it is more than twice the patience.
IDLE_MAX_S = 45.0
# A wait in which later asks got so many grants is starvation.
STARVING_GRANTS = 10
# A queue may be taken from by so much below its guarantee where another one gets its first.
DEAD_ZONE = 0.1
# policies that owe the head of their line nothing but a node in the end
BY_WORK = ("sjf", "tetris", "graphene", "carbyne", "fair", "drf")
_BEFORE_MASTER = ("NEW", "SUBMITTED", "ACCEPTED")
DELAY_SCHEDULERS = ("capacity", "fair")
IN_LINE = ("capacity", "fifo")
# They go down the tree of queues, and to leaves below their guarantee first.
BY_HDRF = ("drf", "carbyne")
BY_TREE = ("capacity", "fair", *BY_HDRF)


class Judge(Holdings):
    """Walks through one run's evidence; `problems` yields what was not as promised."""

    def __init__(self, seen: Evidence) -> None:
        super().__init__(seen)
        self.kept: Mapping[NodeId, AppId] = {}
        self.kept_before: Mapping[NodeId, AppId] = {}
        self.kept_s = -1.0
        # Where a container ends at this moment, whether its end was told before or is told after.
        self.ending: set[NodeId] = set()
        # Where the gangs start that do at this moment.
        self.gang_nodes: dict[tuple[AppId, int], list[NodeId]] = {}
        # What masters take that start at this moment and are told after what was granted beside.
        self.starting: dict[ContainerId, tuple[NodeId, Vector]] = {}
        # What leaves were granted at this moment: masters that start then were placed before it.
        self.granted_now: list[tuple[str, Vector]] = []
        # Of nodes that are kept, what ran there when that began; none where anything began since.
        self.older: dict[NodeId, list[ContainerId]] = {}
        # What was stopped in the end for others; what was chosen may be spared.
        self.preempted = {
            event.container
            for _, event in seen.events
            if isinstance(event, Closed) and event.outcome is Outcome.PREEMPTED
        }
        # When something was granted last.
        self.granted_s = -1.0
        self.idle_s = 0.0
        lasting = seen.lifetimes_s()
        usual_s = lasting[len(lasting) * 9 // 10] if lasting else 0.0
        self.bound_s = seen.patience_s + 6 * max(usual_s, 8.0) + 10.0
        # by leaf that is owed: since when, and how many others were served
        self.below: dict[str, tuple[float, int]] = {}
        # When containers should end, by the estimates of what asked for them.
        self.end_s: dict[ContainerId, float] = {}
        self.gang_granted_s: dict[tuple[AppId, int], float] = {}
        self.ran: dict[tuple[AppId, int], list[float]] = defaultdict(list)

    def problems(self) -> Iterator[str]:
        """Yield problems in the order of time, the same kind once."""
        for now, group in groupby(self.seen.events, key=itemgetter(0)):
            yield from self._over_time(now)
            events = [event for _, event in group]
            every = {**self.masters, **self.placed}
            ended = (event.container for event in events if isinstance(event, Closed))
            self.ending = {every[container][0] for container in ended if container in every}
            self.starting = {
                event.container: (event.node, event.demand)
                for event in events
                if isinstance(event, TaskStarted) and event.stage < 0
            }
            self.granted_now = []
            self.served_now = set()
            self.gang_nodes = defaultdict(list)
            for event in events:
                if isinstance(event, Placed):
                    app = app_of_container(event.container)
                    self.gang_nodes[app, event.stage].append(event.node)
            for event in events:
                yield from self._take(now, event)
            self._mark(now)
        yield from self._at_the_end()

    # -- events ------------------------------------------------------------------------------------

    def _take(self, now: float, event: object) -> Iterator[str]:
        if isinstance(event, Placed):
            yield from self._placed(now, event)
        elif isinstance(event, Closed):
            self.closed(event.container)
        elif isinstance(event, ContainersAsked):
            self._asked(now, event)
        elif isinstance(event, TaskStarted):
            yield from self._started(now, event)
        elif isinstance(event, PreemptionChosen):
            yield from self._chosen(now, event)
        elif isinstance(event, AppChanged):
            self.live_app_states[event.app] = event.state
            if event.final_status != "UNDEFINED":
                del self.live_app_states[event.app]
                self.pending_rows = {
                    key: row for key, row in self.pending_rows.items() if row.app != event.app
                }
        elif isinstance(event, Kept):
            yield from self._kept_in_line(now, event)
            kept_in_vain = [
                row for row in self.pending_rows.values() if self._waits_for_its_node(row)
            ]
            self._keeps(event)
            self.kept_before, self.kept, self.kept_s = self.kept, event.nodes, now
            # A node that gives way to others for a look is not held against who waits for it.
            self._wait_anew(now, [row for row in kept_in_vain if not self._waits_for_its_node(row)])

    def _asked(self, now: float, event: ContainersAsked) -> None:
        app = app_of_attempt(event.attempt_id)
        for ask in event.asks:
            key = (event.attempt_id, ask.ask_id)
            row = self.rows.get(key)
            if row is None:
                row = self.rows[key] = Row(app, event.attempt_id, ask, now, waits_s=now)
            elif row.pending <= 0:
                row.asked_s = row.waits_s = now
                row.overtaken = 0
                row.beside.clear()
            row.ask, row.told_s = ask, now
            if row.pending > 0 and app in self.job:
                if key not in self.pending_rows:
                    self._wait_anew(now, [row])
                self.pending_rows[key] = row
            else:
                self.pending_rows.pop(key, None)
        if event.blacklist is not None:
            self.avoided[event.attempt_id] = (now, frozenset(event.blacklist))

    def _placed(self, now: float, event: Placed) -> Iterator[str]:
        attempt = attempt_of_container(event.container)
        app = app_of_container(event.container)
        key = (attempt, event.ask)
        row = self.rows.get(key)
        if app not in self.job:
            return
        if row is not None:
            yield from self._fits_what_was_asked(now, event, row)
            began_s = self.gang_granted_s.get((app, event.stage), -1.0)
            if row.ask.gang:
                self.gang_granted_s[app, event.stage] = now
            # The first container of a gang brings the others.
            if not row.ask.gang or began_s < now:
                yield from self._within_limits(now, event, app, self.at_once(row))
                yield from self._in_turn(now, event, row)
            self._overtakes(now, event, app)
            self._serves(event)
            self.granted_now.append((event.queue, event.demand))
            self.served_now.add((event.queue, self.job[app].user))
            self.granted_s = now
            row.granted += 1
            row.beside.clear()
            self._wait_anew(now, [one for one in self.pending_rows.values() if one.app == app])
            self.end_s[event.container] = now + row.ask.duration_s
            if row.pending <= 0:
                self.pending_rows.pop(key, None)
        yield from self._hold(event.container, event.node, app, event.demand)

    def _hold(
        self, container: ContainerId, node: NodeId, app: AppId, demand: Vector
    ) -> Iterator[str]:
        self.placed[container] = (node, app, demand)
        self.older.pop(node, None)
        self.count(app, node, demand, 1.0)
        names = self.seen.cluster.types.names
        for r, left in enumerate(self.free[node]):
            over = names[r] in self.seen.overbooked
            least = (1.0 - self.seen.overbook_limit) * self.nodes[node].capacity[r] if over else 0.0
            if left < least - SLACK * self.nodes[node].capacity[r]:
                yield f"more {names[r]} is granted than there is [{node}]"

    def _started(self, now: float, event: TaskStarted) -> Iterator[str]:
        app = app_of_container(event.container)
        if event.stage < 0:
            # A master is of no ask.
            self.starting.pop(event.container, None)
            if event.container not in self.placed:
                if app in self.queue:
                    yield from self._goes_first(now, event.node, self.queue[app], self.granted_now)
                self.masters[event.container] = (event.node, app, event.demand)
                for r, amount in enumerate(event.demand):
                    self.free[event.node][r] -= amount
            return
        job = self.job.get(app)
        if job is None:
            return
        stage = job.stages[event.stage]
        if not label_fits(stage.label, self.nodes[event.node]):
            yield f"a task runs on a node with another label [{job.name} {stage.name} {event.node}]"
        if stage.gang and event.attempt == 0:
            self.ran[app, event.stage].append(now)

    # -- of every start ----------------------------------------------------------------------------

    def _fits_what_was_asked(self, now: float, event: Placed, row: Row) -> Iterator[str]:
        node, ask = self.nodes[event.node], row.ask
        where = f"[{self.job[row.app].name} {event.node}]"
        if not label_fits(ask.label, node):
            yield f"a container is on a node with another label {where}"
        if not place_fits(ask, node):
            yield f"a container is on none of the nodes that its ask names {where}"
        told_s, avoided = self.avoided.get(row.attempt, (now, frozenset()))
        if event.node in avoided and told_s < now:
            yield f"a container is on a node of the black list {where}"
        if event.demand != ask.demand:
            yield f"a container has another size than its ask {where}"
        # Otherwise the new total is on its way.
        if row.pending <= 0 and row.told_s < now:
            yield f"more containers than were asked for {where}"

    def _within_limits(
        self, now: float, event: Placed, app: AppId, demand: Vector
    ) -> Iterator[str]:
        """Yield who gets more though it holds more than its limit; one more may pass it.

        `demand` is that one container, or all of a gang.
        """
        path = event.queue
        while path:
            most = self.share[path][1]
            if most < 1 and self.over(self.held[path], most, demand):
                yield f"a queue above its maximum gets more [{path}]"
            path = path.rpartition(".")[0]
        leaf, user = event.queue, self.job[app].user
        limit = self.user_limit(leaf, demand, now)
        if any(
            need > 0 and held > most * (1 + SLACK) + SLACK
            for need, held, most in zip(demand, self.user_held[leaf, user], limit, strict=True)
        ):
            yield f"a user above the limit gets more [{user} in {leaf}]"

    def _in_turn(self, now: float, event: Placed, row: Row) -> Iterator[str]:
        """Yield who is served above its guarantee though one below asks for this very room."""
        if prefers(row.ask) or event.kind is AskType.ALTRUISTIC:
            return
        # It is enough if it is a gang's turn on one of its nodes.
        of_gang = self.gang_nodes.get((row.app, event.stage)) if row.ask.gang else None
        found = [list(self._goes_first(now, n, event.queue)) for n in of_gang or (event.node,)]
        if all(found):
            yield from found[0]

    def _goes_first(
        self, now: float, node: NodeId, leaf: str, without: Grants = ()
    ) -> Iterator[str]:
        """Yield whom a queue goes before on a node, with an ask, a gang or a master.

        What the queue was granted `without` counts for nothing.
        """
        # Graphene bounds the unfairness by counters, of gangs as of any ask.
        if self.seen.matcher == "graphene" or node in self.kept or node in self.kept_before:
            return
        for other in self.pending_rows.values():
            # What is told at this moment may come after what is granted.
            if other.told_s >= now - SAME_S or other.ask.gang or prefers(other.ask):
                continue
            if other.ask.kind is AskType.ALTRUISTIC:
                continue
            # The strict order lets nobody pass the head of its own line.
            if self.seen.matcher == "fifo" and not self._is_head(other):
                continue
            mine, theirs = parting(leaf, self.leaf(other))
            if not mine or not self._is_open_beside(other, node) or not self.may_hold(other):
                continue
            if self._is_owed(mine, theirs, leaf, other, without):
                yield f"a queue above its guarantee goes before one below [{mine}, {theirs}]"
                return
            if self.seen.matcher in BY_TREE and self._leaf_is_owed(mine, leaf, other, without):
                yield (
                    "a queue goes before one with a leaf below its guarantee "
                    f"[{leaf}, {self.leaf(other)}]"
                )
                return

    def _is_open_beside(self, row: Row, name: NodeId) -> bool:
        """Whether it could start on a node beside the masters that start there: they go first."""
        free = self.free[name]
        for node, demand in self.starting.values():
            if node == name:
                free = [f - d for f, d in zip(free, demand, strict=True)]
        return self.is_open(row, name) and all(
            need <= f + SLACK for need, f in zip(row.ask.demand, free, strict=True)
        )

    def _is_owed(self, mine: str, theirs: str, leaf: str, other: Row, without: Grants) -> bool:
        above, below = self.share[mine][0], self.share[theirs][0]
        if self._dominant_without(mine, without) <= above + SLACK:
            return False
        # A queue goes first for the sake of one below it, too.
        path = leaf
        while path != mine:
            if self._dominant_without(path, without) <= self.share[path][0] + SLACK:
                return False
            path = path.rpartition(".")[0]
        if self.dominant(theirs, other.ask.demand) > below - SLACK:
            return False
        # The fair matcher counts containers.
        if self.seen.matcher == "fair":
            weights = max(above, 1e-9), max(below, 1e-9)
            return (
                self.containers_by_queue[mine] / weights[0]
                > (self.containers_by_queue[theirs] + 1) / weights[1]
            )
        return True

    def _dominant_without(self, path: str, without: Grants) -> float:
        less = [0.0] * len(self.total)
        for leaf, demand in without:
            if f"{leaf}.".startswith(f"{path}."):
                less = [amount - d for amount, d in zip(less, demand, strict=True)]
        return self.dominant(path, tuple(less))

    def _leaf_is_owed(self, mine: str, leaf: str, other: Row, without: Grants) -> bool:
        """Whether a leaf stays below its guarantee, and all beside it that ask are above theirs."""
        if self.used_ratio(self.leaf(other), other.ask.demand) > 1 - SLACK:
            return False
        rivals = {self.leaf(row) for row in self.pending_rows.values()} | {leaf}
        return all(
            self._dominant_without(rival, without) > self.share[rival][0] + SLACK
            for rival in rivals
            if f"{rival}.".startswith(f"{mine}.")
        )

    def _keeps(self, event: Kept) -> None:
        for node in self.kept.keys() | event.nodes.keys():
            if self.kept.get(node) != event.nodes.get(node):
                self.older.pop(node, None)
                if node in event.nodes:
                    self.older[node] = [n for n, (at, _, _) in self.placed.items() if at == node]

    def _kept_in_line(self, now: float, event: Kept) -> Iterator[str]:
        """Yield who has a node kept though an earlier one of its queue starves for such a node."""
        if self.seen.matcher not in IN_LINE:
            return
        for node, app in event.nodes.items():
            if not app or self.kept.get(node) == app:
                continue
            for row in self.pending_rows.values():
                if row.app in event.nodes.values() or self._order(row.app) >= self._order(app):
                    continue
                if self.leaf(row) == self.queue[app] and self._starves(row, now, node):
                    names = f"{self.job[app].name}, {self.job[row.app].name}, {node}"
                    yield f"a node is kept for a later one of a line [{names}]"
                    return

    def _starves(self, row: Row, now: float, node: NodeId) -> bool:
        """Whether it got nothing for longer than patience while others did, and fits nowhere."""
        if row.ask.gang or prefers(row.ask) or not self.able(row, node):
            return False
        if now - max(row.waits_s, row.asked_s) <= self.seen.patience_s + SLACK:
            return False
        if self.granted_s <= row.waits_s or not self.may_hold(row):
            return False
        if any(self.able(row, name) for name in self.ending):
            return False
        return not any(self.is_open(row, name) for name in self.nodes)

    def _wait_anew(self, now: float, rows: list[Row]) -> None:
        """Begin the waits of rows: how many large ones wait now goes into how long they may."""
        large = {
            key: one.pending
            for key, one in self.pending_rows.items()
            if rows and self.is_large(one) and not self.is_held_back(one)
        }
        for row in rows:
            row.waits_s, row.overtaken = now, 0
            row.ahead = {key: n for key, n in large.items() if self.pending_rows[key] is not row}

    def _overtakes(self, now: float, event: Placed, app: AppId) -> None:
        held_back = []
        for row in self.pending_rows.values():
            if row.app == app or not self.able(row, event.node):
                continue
            if not self.may_hold(row) or (row.ask.gang and not self._gang_has_a_claim(row)):
                held_back.append(row)
            elif self._large_and_first(row):
                later = self._order(app) > self._order(row.app)
                row.overtaken += self.seen.matcher != "fifo" or later
            elif self.seen.matcher not in BY_WORK and self.leaf(row) == event.queue:
                row.overtaken += self._order(app) > self._order(row.app) and self._is_head(row)
        self._wait_anew(now, held_back)

    def _gang_has_a_claim(self, row: Row) -> bool:
        """Whether a gang's queue stays within its guarantee, or no rival holds less of its own."""
        leaf, rest = self.leaf(row), self.at_once(row)
        guarantee = self.share[leaf][0]
        held = zip(self.held[leaf], self.of_masters(leaf), rest, self.total, strict=True)
        if all(h + m + r <= guarantee * c for h, m, r, c in held):
            return True
        rivals = (o for o in self.pending_rows.values() if o.ask.label == row.ask.label)
        ways = (parting(leaf, self.leaf(other)) for other in rivals)
        return all(
            not mine or self.used_ratio(theirs) >= self.used_ratio(mine) for mine, theirs in ways
        )

    def _is_head(self, row: Row) -> bool:
        """Whether nobody before it in its queue waits."""
        mine = self._order(row.app)
        return all(
            self._order(other.app) >= mine or self.leaf(other) != self.leaf(row)
            for other in self.pending_rows.values()
        )

    def _serves(self, event: Placed) -> None:
        """Count for queues below their guarantee that one above its own is served."""
        if self.dominant(event.queue) <= self.share[event.queue][0] + SLACK:
            return
        for leaf, (since_s, others) in self.below.items():
            if leaf != event.queue:
                self.below[leaf] = since_s, others + 1

    def _owed(self) -> set[str]:
        """Leaves that hold much less than their guarantee while they ask, and may."""
        return {
            self.leaf(row)
            for row in self.pending_rows.values()
            if not row.ask.gang
            and not prefers(row.ask)
            and not row.ask.label
            and not row.ask.strict
            and self.dominant(self.leaf(row), row.ask.demand) < 0.6 * self.share[self.leaf(row)][0]
            and self.may_hold(row)
        }

    def _order(self, app: AppId) -> tuple[int, AppId]:
        return -self.job[app].priority, app

    def _large_and_first(self, row: Row) -> bool:
        """No two of it fit on any node, its queue's guarantee could hold it, it is the first."""
        demand = row.ask.demand
        if any(
            all(2 * need <= c for need, c in zip(demand, spec.capacity, strict=True))
            for spec in self.nodes.values()
            if label_fits(row.ask.label, spec)
        ):
            return False
        guarantee = self.share[self.leaf(row)][0]
        if any(need > guarantee * c for need, c in zip(demand, self.total, strict=True)):
            return False
        return all(app != row.app for _, app, _ in self.placed.values())

    def _chosen(self, now: float, event: PreemptionChosen) -> Iterator[str]:
        """Only what is above its guarantee gives, and somebody who cannot start elsewhere takes."""
        # What was chosen before may not be needed any more.
        if self.chosen[0] < now:
            self.chosen = now, set()
        if not self.seen.intra_queue and event.queue in self.share:
            held = list(self.held[event.queue])
            for _, app, demand in self.masters.values():
                if self.queue.get(app) == event.queue:
                    held = [h + d for h, d in zip(held, demand, strict=True)]
            for container in self.chosen[1] & self.preempted:
                _, app, demand = self.placed.get(container, ("", 0, ()))
                if self.queue.get(app) == event.queue:
                    held = [h - d for h, d in zip(held, demand, strict=True)]
            least = self.share[event.queue][0]
            if self._first_passes_guarantee(event.queue):
                least *= 1.0 - DEAD_ZONE
            if all(h <= least * c * (1 + SLACK) for h, c in zip(held, self.total, strict=True)):
                yield f"a container is taken from a queue within its guarantee [{event.queue}]"
            if not any(state in _BEFORE_MASTER for state in self.live_app_states.values()):
                yield from self._taken_for_nobody(now, event)
        self.chosen[1].add(event.container)

    def _first_passes_guarantee(self, giver: str) -> bool:
        """Whether another queue asks for one container that is more than it is guaranteed."""
        return any(
            self.leaf(row) != giver and self.over(list(need), self.share[self.leaf(row)][0], need)
            for row in self.pending_rows.values()
            if any(need := row.ask.demand)
        )

    def _taken_for_nobody(self, now: float, event: PreemptionChosen) -> Iterator[str]:
        """Yield whose container goes though all whose queues may claim something have room.

        What an application that is over still holds ends anyway, for its queue as on its nodes,
        and so does what should end before a container that is stopped could, and what was chosen
        before at this moment: its queue may be below its guarantee by that.
        """
        stop_s = now + STOP_HEARTBEATS * self.seen.heartbeat_s * (self.seen.pace == "yarn")
        free = {name: list(left) for name, left in self.free.items()}
        held = {leaf: list(amounts) for leaf, amounts in self.held.items()}
        for container, (node, app, demand) in self.placed.items():
            ends = now < self.end_s.get(container, now) <= stop_s
            if app not in self.live_app_states or ends or container in self.chosen[1]:
                free[node] = [f + d for f, d in zip(free[node], demand, strict=True)]
                leaf = self.queue[app]
                held[leaf] = [h - d for h, d in zip(held[leaf], demand, strict=True)]
        # A round that chooses may free nodes that were kept when it began.
        for name in {*self.kept, *(self.kept_before if self.kept_s == now else ())}:
            if name != event.node:
                del free[name]
        for row in self.pending_rows.values():
            guarantee = self.share[self.leaf(row)][0]
            if self.leaf(row) == event.queue or not self.able(row, event.node):
                continue
            own = held.get(self.leaf(row), [])
            if any(h / c >= guarantee - SLACK for h, c in zip(own, self.total, strict=False) if c):
                continue
            if row.ask.gang or not self.all_fit(row, free):
                return
        yield f"a container is taken for nobody who needs its room [{event.queue} {event.node}]"

    # -- over time ---------------------------------------------------------------------------------

    def _mark(self, now: float) -> None:
        """Note since when asks are beside room."""
        owed = self._owed() if self.seen.matcher == "drf" else set()
        self.below = {leaf: self.below.get(leaf, (now, 0)) for leaf in owed}
        for key, row in self.pending_rows.items():
            if not self.is_large(row):
                continue
            was_held_back, row.held_back = row.held_back, self.is_held_back(row)
            if was_held_back and not row.held_back:
                for other in self.pending_rows.values():
                    if other is not row:
                        other.ahead.setdefault(key, row.pending)
        running = any(app in self.job for _, app, _ in self.placed.values())
        if running or not self.pending_rows:
            self.idle_s = now
        for row in self.pending_rows.values():
            if self._is_exempt(row):
                row.beside.clear()
                continue
            free = [name for name in self.nodes if name not in self.kept]
            there = [name for name in free if self.is_open(row, name)]
            if there and not self.may_hold(row):
                there = []
            row.beside = {name: row.beside.get(name, now) for name in there}

    def _is_exempt(self, row: Row) -> bool:
        """Whether it may be let wait beside room by its policy, or as a part of a gang."""
        if row.ask.gang:
            return True
        if self.seen.matcher in DELAY_SCHEDULERS and prefers(row.ask):
            return True
        if self.seen.matcher == "fifo":
            return any(other is not row for other in self.pending_rows.values())
        return False

    def _over_time(self, now: float) -> Iterator[str]:
        """Judge the time until now, in which nothing changed."""
        for row in self.pending_rows.values():
            wait_s = max((now - since for since in row.beside.values()), default=0.0)
            if wait_s > WAIT_HEARTBEATS_MAX * self.seen.heartbeat_s + SLACK:
                name = min(row.beside, key=lambda one: row.beside[one])
                yield f"an ask waits beside room [{self.job[row.app].name} {name} {wait_s:.1f} s]"
                row.beside.clear()
            if (
                row.overtaken >= STARVING_GRANTS
                and now - row.waits_s > self.bound_s * (1 + sum(row.ahead.values()))
                and not self._waits_for_its_node(row)
            ):
                yield (
                    f"an ask starves [{self.job[row.app].name} {now - row.waits_s:.0f} s, "
                    f"{row.overtaken} others served]"
                )
                row.overtaken = -(10**9)
        for leaf, (since_s, others) in self.below.items():
            if now - since_s > self.bound_s and others >= 3 * STARVING_GRANTS:
                yield f"a queue stays below its guarantee [{leaf} for {now - since_s:.0f} s]"
                self.below = {}
                break
        if self.pending_rows and now - self.idle_s > IDLE_MAX_S:
            names = sorted({self.job[row.app].name for row in self.pending_rows.values()})
            yield f"nothing runs though somebody asks [{names} for {now - self.idle_s:.0f} s]"
            self.idle_s = float("inf")

    def _waits_for_its_node(self, row: Row) -> bool:
        """Whether a node is kept for it on which something still runs, and nothing began since.

        A container that runs one task after another lasts longer than tasks do. In a line a node is
        kept for the first one, and those behind it wait for the same.
        """
        kept = {
            app
            for name, app in self.kept.items()
            if any(one in self.placed for one in self.older.get(name, ()))
        }
        if row.app in kept or (row.ask.gang and 0 in kept):
            return True
        return self.seen.matcher in IN_LINE and any(
            self.queue.get(app) == self.leaf(row) and self._order(app) < self._order(row.app)
            for app in kept
            if app
        )

    # -- at the end --------------------------------------------------------------------------------

    def _at_the_end(self) -> Iterator[str]:
        if len(set(self.seen.numbers)) < len(self.seen.numbers):
            yield f"two jobs have one number in the results [{list(self.seen.numbers)}]"
        limited = any(
            spec.max_capacity < 1 or spec.user_limit_factor < float("inf") or not spec.capacity
            for spec in self.limits.values()
        )
        for end in self.seen.jobs:
            if end.state == "KILLED" and end.job.lifetime_s:
                lasted_s = end.finish_s - end.job.arrival_s
                if lasted_s < end.job.lifetime_s - SAME_S:
                    yield f"a job ends before its lifetime [{end.job.name}: {lasted_s:.0f} s]"
                continue
            if end.state == "FINISHED":
                continue
            gang = any(stage.gang for stage in end.job.stages)
            if end.state == "REFUSED":
                if not (gang or limited):
                    yield f"a job is refused without need [{end.job.name}: {end.diagnostics}]"
            else:
                yield f"a job does not end [{end.job.name}: {end.state} {end.diagnostics}]"
        for end in self.seen.jobs:
            for number, stage in enumerate(end.job.stages):
                times = self.ran[end.app, number]
                if not stage.gang or end.state != "FINISHED":
                    continue
                if len(times) < stage.tasks or max(times) - min(times) > SAME_S:
                    yield (
                        f"a gang starts in parts [{end.job.name} {stage.name}: {len(times)} of "
                        f"{stage.tasks}, the first {min(times, default=0):g} s]"
                    )
