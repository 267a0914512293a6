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
from weft.model.job_size import job_bytes
from weft.model.resources import Vector
from weft.protocol.messages import (
    AsksRefused,
    Container,
    ContainerEnd,
    MasterLaunch,
    Preemption,
)
from weft.protocol.outbox import Outbox
from weft.protocol.record import slotted

ENDED_SHOWN_MAX = 200
# This is `Node.settled_at` where it is no version: a match there may yield something though nothing
# changed, or there was none since the node came.
AGAIN, NEVER = -1, -2
# What a master may be owed; MACHINES is owed as None.
Owed = Container | ContainerEnd | Preemption | AsksRefused | None


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
      one is `adopted`, as is one whose node came back smaller, and is booked whatever the capacity;
    * `stage` is -1 where it answers no ask;
    * `claimed` ones rest on the node's word alone: should the node be lost, nobody waits for their
      end, while all others go to `Node.unconfirmed`;
    * `end_s` is when it is expected to end, by the ask's estimate;
    * `preempted` ones were stopped for another queue or application, `ended_node` ones had their
      node's process end under them;
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
    stage: int
    end_s: float
    count: int = 1
    adopted: bool = False
    claimed: bool = False
    preempted: bool = False
    stop_reason: str = ""
    ended_node: bool = False

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

    Its life is `lifecycle.ATTEMPT`. `master` is its container from ALLOCATED until that ended, None
    while it waits for one and after a restart of the manager until its node is back; `master_id`
    stays, so that its end is recognised. `vector` and `demand` are what that container holds.
    Whatever it is owed lies in `outbox` until its master acknowledges it: nothing that is put there
    is told once only, and nothing is taken out but by `drop`, when it no longer matters. `entries`
    has all asks that it ever made, by the id that its master gave each, `holdings` every container
    that is booked for it, its master's too.

    The next answer echoes `acks`, numbers of its requests. `avoid` are nodes where attempts before
    failed, `failed_on` is where its own master did; `ended_node` says that its master's node ended
    with it, `counts` that it failed and not only because its node was lost. It is `recovered` where
    it lived before the manager's last start. It `takes_over` where its master is of a kind that
    follows what an earlier one started. `share` and `headroom` are as last told to its master; they
    are told again when they change, and now and then, as an answer may be lost.
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
        self.vector = vector
        self.demand: Floats = np.array(vector)
        self.state = AttemptState.NEW
        # A grant's key is the container's number, an end's the same below zero, that of a task's
        # end inside a reusable container (number, stage, task, attempt), that of a notice of
        # preemption (number, -1), that of a refusal (request, "refused"). MACHINES has None, and
        # they are told as they are then.
        self.outbox: Outbox[Any, Owed] = outbox
        self.master: Holding | None = None
        self.master_id: ContainerId = 0
        self.holdings = holdings
        self.entries: dict[int, AskEntry] = {}
        self.acks: list[int] = []
        self.blacklist: tuple[NodeId, ...] = ()
        self.avoid: frozenset[NodeId] = frozenset()
        self.failed_on: NodeId = ""
        self.ended_node = False
        self.address = ""
        # This is for its next container. Each life of the manager begins at 1 and puts its own
        # number in front (`weft.model.ids`), so no id is ever given twice, though none of them is
        # stored.
        self.next_number = 1
        # It is that of number 0, which no container has, in this life.
        self.id_before: ContainerId = 0
        # This is the newest message heard: progress and blacklist of an older one are not taken,
        # asks are, as those count from the beginning.
        self.request_id = 0
        self.created_s = 0.0
        self.seen_s = 0.0
        self.counts = False
        self.recovered = False
        self.takes_over = False
        self.seed = 0
        self.share: Vector = ()
        self.headroom: Vector = ()
        self.diagnostics = ""


class App:
    """An application: its job, its attempts and what is known of its tasks.

    Its life is `lifecycle.APP`. `attempt` is the last of `attempts`; those before have ended.
    `slot` is its place in the ledger while any container is booked for it or may be asked for, so
    it outlives the last attempt until the last node said that the last container ended; it is -1
    otherwise. The lists by stage have one entry a stage; `finished` is emptied then, the counts
    beside it stay. An application is `whole` while its job and its containers are known still; one
    that ended long ago is not.

    It is killed at `expires_s`, done or not; a client wants that at `wished_s`, 0 where none said
    so. `preempted` counts containers, `preempted_amounts` is what they held. `held_s` is amount x s
    of containers that ended, masters included. By stage, `finished_by_stage` counts tasks, each
    once, and `failed` tries of tasks, both of all attempts; `running` counts containers in the
    books.
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
        "job_bytes",
        "last_number",
        "left_queue",
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
        self.job_bytes = job_bytes(job)
        self.submission_id = submission_id
        self.queue = queue
        # The queue that it was in when it ended, where that is gone; `queue` is one above it then.
        self.left_queue = ""
        self.priority = job.priority
        self.whole = True
        self.state = AppState.NEW
        self.final_status = "UNDEFINED"
        self.diagnostics = ""
        self.slot = -1
        self.attempt: Attempt | None = None
        self.attempts: list[Attempt] = []
        # That of its last attempt stays when those of an ended application are forgotten.
        self.last_number = 0
        self.submitted_s = now
        self.expires_s = inf
        self.wished_s = 0.0
        self.started_s = 0.0
        self.finished_s = 0.0
        self.preempted = 0
        self.preempted_amounts = [0.0] * resources
        self.held_s: Floats = np.zeros(resources)
        self.progress = 0.0
        self.tracking_url = ""
        # Containers of it ran here, and they or its own master may have left files.
        self.nodes: dict[str, Node] = {}
        # Its masters held these before the manager's restart and did not find them in its books.
        self.held_on: dict[ContainerId, NodeId] = {}
        # They gave these back before their node had told of them, and they are stopped then; only
        # the newest are kept.
        self.given_back: dict[ContainerId, None] = {}
        # These tasks of each stage may still be news; there are none once how it ended is decided.
        self.sizes = [stage.tasks for stage in job.stages]
        # By stage, each task has its run time, s, only while it may matter to a later attempt.
        self.finished: list[dict[int, float]] = [{} for _ in range(stages)]
        self.finished_by_stage = [0] * stages
        self.running = [0] * stages
        self.failed = [0] * stages
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
    `challenge` is which other process says to be this node, and what it must answer. Its containers
    are in `holdings` from the grant until the node itself says that they ended, or is given up;
    then they go to `unconfirmed`, as it may still run them, and are booked again, for nobody, when
    it comes back. `emptied` are the newest reusable ones that ended here. `slot` is its row in the
    ledger and in `Books.node_at`. `runs` is kept once a policy has asked for it.

    What a leaving node runs is stopped at `drain_until_s`; below 0 it never is. Tasks run `speed`
    times as fast on it as estimated. `unhealthy` is why it is not fit for new work, as report
    `unhealthy_at` says. `files` says that applications leave files there, which go when they are
    over; `lacking` what was wanted to keep tasks apart and its host cannot do. The next answer
    echoes `acks`, numbers of its reports. It was last told that its ends are refused at
    `refused_s`, and an opportunity here was last counted as missed at `missed_s`. `settled_at` is
    `MatchState.version` at its last match, or NEVER, or AGAIN: match it anyway.
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
        "said",
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
        self.runs: RunningByEnd | None = None
        self.outbox: Outbox[int, Order] = outbox
        self.state = RmNodeState.NEW
        self.address = ""
        self.rack = ""
        self.labels: tuple[str, ...] = ()
        self.capacity: Vector = (0.0,) * d
        # It offers so much, and has these labels, where no operator said otherwise.
        self.said: tuple[Vector, tuple[str, ...]] = ((), ())
        self.use: Vector = ()
        self.present = False
        self.drain_until_s = -1.0
        self.boot = 0
        self.challenge = (0, 0)
        self.sure = False
        self.speed = 1.0
        self.holdings = holdings
        self.unconfirmed: dict[ContainerId, Vector] = {}
        self.emptied: dict[ContainerId, None] = {}
        self.unhealthy = ""
        self.unhealthy_at = 0
        self.files = False
        self.lacking = ""
        self.acks: list[int] = []
        self.refused_s = -np.inf
        self.missed_s = -np.inf
        self.settled_at = NEVER


class MatchState:
    """The state of matching between events.

    `version` grows with whatever may make a fruitless match fruitful: a container ended, something
    was asked, a node came, a queue or limit moved. Whoever changes such a thing calls `changed`; a
    node is not matched again until then (`Node.settled_at` is the version of its last match).

    To forget `changed` starves somebody until something else moves; to call it for nothing costs a
    pass. A version is only ever compared with one that was taken down before, never counted.

    * `matched_at` is the version at the last whole pass over all nodes, `cursor` the node slot
      where the next one begins; `passes` counts them, and one is under way where `in_pass`. A pass
      is `cut` where there was more to grant than one pass may;
      `timer_set` says that one is about to come, in prompt pace.
    * `gangs_at` is the version at which no gang fitted, -1 if others were served since. No nodes
      are kept for gangs until `gangs_rest_s`.
    * `reserved` has, by ask, since when which node slots are kept for it. It is next looked for
      starving asks at `reserve_at`, beginning with nodes of the kind `kinds_from`.
    * `master_s` is when a master was started last.
    * `looked` counts the asks that may be owed a node and that the last looks passed over;
      `by_debt` says whether the last node kept for a debt went to whom it is owed.
    """

    __slots__ = (
        "by_debt",
        "cursor",
        "cut",
        "gang_line",
        "gangs_at",
        "gangs_rest_s",
        "in_pass",
        "kinds_from",
        "looked",
        "master_s",
        "matched_at",
        "passes",
        "reserve_at",
        "reserved",
        "timer_set",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        self.matched_at = -1
        self.timer_set = False
        self.cursor = 0
        self.cut = False
        self.in_pass = False
        self.passes = 0
        self.gang_line = GangLine()
        self.gangs_at = -1
        self.gangs_rest_s = 0.0
        self.reserved: dict[int, tuple[float, list[int]]] = {}
        self.looked = 0
        self.by_debt = False
        self.kinds_from = 0
        # The last start of a master.
        self.master_s = -inf
        self.reserve_at = 0.0

    def changed(self) -> None:
        """Note that something may be placed that could not be before."""
        self.version += 1

    def eased(self) -> None:
        """Note that limits grew amid a pass: a user's last ask was served, so fewer share them."""
        self.version += 1
        self.cut = True

    def begin_pass(self) -> None:
        """Begin a pass over all nodes, not cut short so far."""
        self.cut, self.in_pass = False, True
        self.passes += 1

    def end_pass(self) -> None:
        """End a pass over all nodes; one that was cut short does not count as fruitless."""
        self.matched_at, self.in_pass = -1 if self.cut else self.version, False

    @property
    def pass_due(self) -> bool:
        """Whether anything changed since the last whole pass."""
        return self.version != self.matched_at

    @property
    def gangs_due(self) -> bool:
        """Whether a gang may fit that did not at the last look."""
        return self.version != self.gangs_at
