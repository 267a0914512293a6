"""The Resource Manager's records: a container, an attempt, an application, a node, its matching.

Plain state; who changes it, and when, is in the modules that `rm.core` calls, `rm.state.books` has
them all.
"""

from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from math import inf
from typing import Any, NamedTuple

import numpy as np

from rm.ledger.asks import AskEntry
from rm.ledger.gang_line import GangLine
from rm.ledger.running import RunningByEnd
from rm.state.lifecycle import AppState, AttemptState, RmContainerState, RmNodeState
from weft.model.dag import Floats
from weft.model.ids import AppId, AttemptId, ContainerId, NodeId
from weft.model.job import Job
from weft.model.resources import Vector
from weft.protocol.messages import Container, ContainerEnd, MasterLaunch, Preemption
from weft.protocol.outbox import Outbox
from weft.protocol.record import slotted

ENDED_SHOWN_MAX = 200
# `Node.settled_at` where it is no version: a match there may yield something though nothing
# changed, or there was none since the node came
AGAIN, NEVER = -1, -2


@slotted
class Holding:
    """A container in the books; `attempt` None: nobody's, until its node says that it ended.

    Or `count` identical ones with consecutive ids, granted at once; nothing else is known of them.
    What holds while it is in the books:

    * it is in `Books.holdings`, in its node's and, unless it is nobody's, in its attempt's, under
      each of its ids, and its demand is booked once for each (`rm.ledger`);
    * `demand` and `vector` are the same amounts, for kernels and for messages. They are what was
      granted, whatever the ask says by now: as much is freed as was booked;
    * `entry` is the ask that it answers; None: a master, or one that a node brought along. Such a
      one is `adopted`, and is booked whatever the capacity;
    * `claimed` ones rest on the node's word alone: should the node be lost, nobody waits for their
      end, while all others go to `Node.unconfirmed`;
    * `end_s` is when it is expected to end, by the ask's estimate;
    * `stop_reason` says why it was ordered to stop where nobody gave it back: its master then hears
      of an end with that reason, whatever the node calls it.
    """

    container_id: ContainerId
    node: "Node"
    attempt: "Attempt | None"
    entry: AskEntry | None
    demand: Floats
    vector: Vector
    started_s: float
    state: RmContainerState
    stage: int  # -1: none
    end_s: float
    count: int = 1
    adopted: bool = False  # its node brought it along, or came back smaller with it
    claimed: bool = False  # and nothing else speaks for that it ever ran there
    preempted: bool = False  # it was stopped for another queue or application
    stop_reason: str = ""  # why it was stopped, where that is no fault of its own
    ended_node: bool = False  # its node's process ended under it

    def part(self, number: ContainerId) -> "Holding":
        """Return one container of a run."""
        return Holding(
            number,
            self.node,
            self.attempt,
            self.entry,
            self.demand,
            self.vector,
            self.started_s,
            self.state,
            self.stage,
            self.end_s,
        )


class Holdings:
    """Containers by id: all, or those of a node or an attempt.

    A run is one `Holding` under all of its ids. Whoever looks at a container finds it by itself, as
    what is to happen to it need not happen to the others: the run is taken apart. `peek` finds the
    run. Whoever writes or drops a single container may do so in `by_id` itself, which costs a third
    of a call. No subclass of `dict`, of which compiled code would not call the methods.
    """

    __slots__ = ("_all", "by_id")

    def __init__(self, all_held: "Holdings | None" = None) -> None:
        self._all = all_held
        self.by_id: dict[ContainerId, Holding] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def __contains__(self, number: object) -> bool:
        return number in self.by_id

    def __iter__(self) -> Iterator[ContainerId]:
        return iter(self.by_id)

    def keys(self) -> KeysView[ContainerId]:
        """Return the ids."""
        return self.by_id.keys()

    def __setitem__(self, number: ContainerId, holding: Holding) -> None:
        self.by_id[number] = holding

    def __delitem__(self, number: ContainerId) -> None:
        del self.by_id[number]

    def hold_run(self, run: Holding) -> None:
        """Add a run under all of its ids here (where all are), to its node's and its attempt's."""
        first, attempt = run.container_id, run.attempt
        assert attempt is not None
        parts = dict.fromkeys(range(first, first + run.count), run)
        self.by_id.update(parts)
        run.node.holdings.by_id.update(parts)
        attempt.holdings.by_id.update(parts)

    def drop_run(self, run: Holding) -> None:
        """Remove a run with all of its ids, as `hold_run` added it."""
        first, attempt = run.container_id, run.attempt
        assert attempt is not None
        everywhere, here, own = self.by_id, run.node.holdings.by_id, attempt.holdings.by_id
        for number in range(first, first + run.count):
            del everywhere[number], here[number], own[number]

    def peek(self, number: ContainerId) -> Holding | None:
        """Return a container, or the run that it is part of."""
        return self.by_id.get(number)

    def runs(self) -> ItemsView[ContainerId, Holding]:
        """Return every id with what `peek` finds."""
        return self.by_id.items()

    def once(self) -> Iterable[Holding]:
        """Return every container, or run of them, once: for callers that only look."""
        return dict.fromkeys(self.by_id.values())

    def get(self, number: ContainerId) -> Holding | None:
        """Return a container by itself."""
        held = self.by_id.get(number)
        if held is not None and held.count > 1:
            self._take_apart(held)
            return self.by_id[number]
        return held

    def __getitem__(self, number: ContainerId) -> Holding:
        held = self.by_id[number]
        if held.count > 1:
            self._take_apart(held)
            return self.by_id[number]
        return held

    def values(self) -> ValuesView[Holding]:
        """Return every container by itself."""
        self._take_all_apart()
        return self.by_id.values()

    def items(self) -> ItemsView[ContainerId, Holding]:
        """Return every container by itself, with its id."""
        self._take_all_apart()
        return self.by_id.items()

    def _take_all_apart(self) -> None:
        runs = {held.container_id: held for held in self.by_id.values() if held.count > 1}
        for run in runs.values():
            self._take_apart(run)

    def _take_apart(self, run: Holding) -> None:
        books = self if self._all is None else self._all
        first, attempt = run.container_id, run.attempt
        parts = {number: run.part(number) for number in range(first, first + run.count)}
        books.by_id.update(parts)
        run.node.holdings.by_id.update(parts)
        if attempt is not None:
            attempt.holdings.by_id.update(parts)


class Attempt:
    """One try at running an application's master.

    Its life is `lifecycle.ATTEMPT`. `master` is its container from ALLOCATED until that ended,
    None while it waits for one and after a restart of the manager until its node is back. Whatever
    it is owed lies in `outbox` until its master acknowledges it: nothing that is put there is told
    once only, and nothing is taken out but by `drop`, when it no longer matters. `entries` has all
    asks that it ever made, `holdings` every container that is booked for it, its master's too.
    """

    __slots__ = (
        "acks",
        "address",
        "app",
        "attempt_id",
        "avoid",
        "blacklist",
        "counts",
        "created_s",
        "demand",
        "diagnostics",
        "ended_node",
        "entries",
        "failed_on",
        "headroom",
        "holdings",
        "id_before",
        "master",
        "master_id",
        "next_number",
        "outbox",
        "recovered",
        "request_id",
        "seed",
        "seen_s",
        "share",
        "state",
        "takes_over",
        "vector",
    )

    def __init__(
        self,
        attempt_id: AttemptId,
        app: "App",
        outbox: Outbox[Any, Any],
        vector: Vector,
        holdings: Holdings,
    ) -> None:
        self.attempt_id = attempt_id
        self.app = app
        self.vector = vector  # what the master's container holds
        self.demand: Floats = np.array(vector)
        self.state = AttemptState.NEW
        # keys: a grant's is the container's number, an end's the same below zero, that of a task's
        # end inside a reusable container (number, stage, task, attempt)
        # or of a word that it will be preempted (number, -1); MACHINES: None, told as they are then
        self.outbox: Outbox[Any, Container | ContainerEnd | Preemption | None] = outbox
        self.master: Holding | None = None
        self.master_id: ContainerId = 0  # stays when `master` is gone: by it the end is recognised
        self.holdings = holdings
        self.entries: dict[int, AskEntry] = {}  # by the id that its master gave the ask
        self.acks: list[int] = []  # numbers of its requests that the next answer echoes
        self.blacklist: tuple[NodeId, ...] = ()
        self.avoid: frozenset[NodeId] = frozenset()  # where attempts before failed
        self.failed_on: NodeId = ""  # where its own master ran when it failed
        self.ended_node = False  # its master's node ended with it
        self.address = ""
        # of its next container. Each life of the manager begins at 1 and puts its own number in
        # front (`weft.model.ids`), so no id is ever given twice, though none of them is stored
        self.next_number = 1
        self.id_before: ContainerId = 0  # of number 0, which no container has, in this life
        # the newest message heard: progress and blacklist of an older one are not taken, asks are,
        # as those count from the beginning
        self.request_id = 0
        self.created_s = 0.0
        self.seen_s = 0.0
        self.counts = False  # it failed, and not only because its node was lost
        self.recovered = False  # it lived before the manager's last start
        self.takes_over = False  # its master is of a kind that follows what an earlier one started
        self.seed = 0
        self.share: Vector = ()  # as last told to its master, as is `headroom`: told again when ...
        self.headroom: Vector = ()  # ... it changed, and now and then, as an answer may be lost
        self.diagnostics = ""


class App:
    """An application: its job, its attempts and what is known of its tasks.

    Its life is `lifecycle.APP`. `attempt` is the last of `attempts`; those before have ended.
    `slot` is its place in the ledger while any container is booked for it or may be asked for, so
    it outlives the last attempt until the last node said that the last container ended. The lists
    by stage have one entry a stage; `finished` is emptied then, the counts beside it stay.
    """

    __slots__ = (
        "app_id",
        "attempt",
        "attempts",
        "closed",
        "diagnostics",
        "expires_s",
        "failed",
        "final_status",
        "finished",
        "finished_by_stage",
        "finished_s",
        "given_back",
        "held_on",
        "held_s",
        "job",
        "nodes",
        "preempted",
        "preempted_amounts",
        "priority",
        "progress",
        "queue",
        "running",
        "sizes",
        "slot",
        "started_s",
        "state",
        "submission_id",
        "submitted_s",
        "tracking_url",
        "whole",
        "wished_s",
    )

    def __init__(
        self, app_id: AppId, job: Job, submission_id: str, queue: int, now: float, resources: int
    ) -> None:
        stages = len(job.stages)
        self.app_id = app_id
        self.job = job
        self.submission_id = submission_id
        self.queue = queue
        self.priority = job.priority
        self.whole = True  # its job and its containers are known still; else it ended long ago
        self.state = AppState.NEW
        self.final_status = "UNDEFINED"
        self.diagnostics = ""
        self.slot = -1  # in the ledger; -1: not there (any more)
        self.attempt: Attempt | None = None
        self.attempts: list[Attempt] = []
        self.submitted_s = now
        self.expires_s = inf  # when it is killed, done or not
        self.wished_s = 0.0  # when a client wants that; 0: no client said so
        self.started_s = 0.0
        self.finished_s = 0.0
        self.preempted = 0  # containers
        self.preempted_amounts = [0.0] * resources  # that those held
        # amount x s of containers that ended, masters included
        self.held_s: Floats = np.zeros(resources)
        self.progress = 0.0
        self.tracking_url = ""
        # where containers of it ran, if they or its own master may have left files there
        self.nodes: dict[str, Node] = {}
        # what its masters held before the manager's restart and did not find in its books
        self.held_on: dict[ContainerId, NodeId] = {}
        # what they gave back of it before its node had told of it, the newest: stopped then
        self.given_back: dict[ContainerId, None] = {}
        # tasks of each stage that may still be news; none once how it ended is decided
        self.sizes = [stage.tasks for stage in job.stages]
        # by stage: task -> run time, s; only while it may matter to a later attempt
        self.finished: list[dict[int, float]] = [{} for _ in range(stages)]
        self.finished_by_stage = [0] * stages  # tasks, each once, of all attempts
        self.running = [0] * stages  # containers in the books
        self.failed = [0] * stages  # tries of tasks, of all attempts
        self.closed: deque[tuple[Holding, ContainerEnd, float]] = deque(maxlen=ENDED_SHOWN_MAX)


class Spared(NamedTuple):
    """What a node is told of a container that is to be stopped unless something runs in it."""

    container_id: ContainerId


class ApplicationOver(NamedTuple):
    """A node is owed the word that an application is over."""

    app_id: AppId


Order = MasterLaunch | ContainerId | ApplicationOver | Spared


class Node:
    """A node, kept by its name for good: what it is owed survives its absence.

    Its life is `lifecycle.NODE`. Three things say who it is: `boot` names its process (one that
    started anew lost what ran before), `present` says that it registered in this life of the
    manager and was not given up since, `sure` that it did so for this life and not by a late copy.
    Its containers are in `holdings` from the grant until the node itself says that they ended, or
    is given up; then they go to `unconfirmed`, as it may still run them, and are booked again, for
    nobody, when it comes back. `slot` is its row in the ledger and in `Books.node_at`.
    """

    __slots__ = (
        "acks",
        "address",
        "boot",
        "capacity",
        "challenge",
        "drain_until_s",
        "emptied",
        "files",
        "holdings",
        "labels",
        "lacking",
        "missed_s",
        "node_id",
        "outbox",
        "present",
        "rack",
        "refused_s",
        "runs",
        "seen",
        "settled_at",
        "slot",
        "speed",
        "state",
        "sure",
        "unconfirmed",
        "unhealthy",
        "unhealthy_at",
        "use",
    )

    def __init__(
        self, node_id: NodeId, slot: int, outbox: Outbox[Any, Any], d: int, holdings: Holdings
    ) -> None:
        self.node_id = node_id
        self.slot = slot
        self.runs: RunningByEnd | None = None  # kept once a policy has asked for them
        self.outbox: Outbox[int, Order] = outbox
        self.state = RmNodeState.NEW
        self.address = ""
        self.rack = ""
        self.labels: tuple[str, ...] = ()
        self.capacity: Vector = (0.0,) * d
        self.use: Vector = ()
        self.present = False  # it registered in this life of the manager, and is not given up
        self.drain_until_s = -1.0  # when what a leaving node runs is stopped; below 0: never
        self.boot = 0  # names the node manager's process
        self.challenge = (0, 0)  # which other process says to be this node, what it must answer
        self.sure = False  # it registered for this life of the manager, not by a late copy
        self.speed = 1.0  # how much faster than their estimates tasks run on it
        self.holdings = holdings
        self.unconfirmed: dict[ContainerId, Vector] = {}  # closed in its absence: it may run them
        self.emptied: dict[ContainerId, None] = {}  # reusable ones that ended here, the newest
        self.unhealthy = ""  # why it is not fit for new work, and ...
        self.unhealthy_at = 0  # ... the number of the report that says so
        self.files = False  # applications leave files there, which go when they are over
        self.lacking = ""  # what was wanted to keep tasks apart and its host cannot do
        self.acks: list[int] = []  # numbers of its reports that the next answer echoes
        self.refused_s = -np.inf  # when it was last told that ends of this node are refused
        self.missed_s = -np.inf  # when an opportunity here was last counted as missed
        self.settled_at = NEVER  # `MatchState.version` at its last match; AGAIN: match it anyway


class MatchState:
    """The state of matching between events.

    `version` grows with whatever may make a fruitless match fruitful: a container ended, something
    was asked, a node came, a queue or limit moved. Whoever changes such a thing calls `changed`; a
    node is not matched again until then (`Node.settled_at` is the version of its last match).

    To forget `changed` starves somebody until something else moves; to call it for nothing costs a
    pass. A version is only ever compared with one that was taken down before, never counted.
    """

    __slots__ = (
        "by_debt",
        "cursor",
        "cut",
        "gang_line",
        "gangs_at",
        "gangs_rest_s",
        "kinds_from",
        "looked",
        "matched_at",
        "reserve_at",
        "reserved",
        "timer_set",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        self.matched_at = -1  # version at the last whole pass over all nodes
        self.timer_set = False  # prompt pace: a pass is about to come
        self.cursor = 0  # node slot where the next pass begins
        self.cut = False  # there was more to grant than one pass may
        self.gang_line = GangLine()
        self.gangs_at = -1  # version at which no gang fitted; -1: others were served since
        self.gangs_rest_s = 0.0  # until when no nodes are kept for gangs
        self.reserved: dict[int, tuple[float, list[int]]] = {}  # by ask: since when, node slots
        self.looked = 0  # asks that may be owed a node, passed over by the last looks
        self.by_debt = False  # whether the last node kept for a debt went to whom it is owed
        self.kinds_from = 0  # kind of nodes with which the next look begins
        self.reserve_at = 0.0  # when to look for starving asks next

    def changed(self) -> None:
        """Note that something may be placed that could not be before."""
        self.version += 1

    def begin_pass(self) -> None:
        """Begin a pass over all nodes, not cut short so far."""
        self.cut = False

    def end_pass(self) -> None:
        """End a pass over all nodes; one that was cut short does not count as fruitless."""
        self.matched_at = -1 if self.cut else self.version

    @property
    def pass_due(self) -> bool:
        """Whether anything changed since the last whole pass."""
        return self.version != self.matched_at

    @property
    def gangs_due(self) -> bool:
        """Whether a gang may fit that did not at the last look."""
        return self.version != self.gangs_at
