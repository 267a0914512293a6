"""The face to foreign Application Masters: register, allocate, finish (requests: `asks`)."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from weft.model.ids import (
    AttemptId,
    ContainerId,
    NodeId,
    app_of_attempt,
    attempt_of_container,
    format_app,
)
from weft.model.resources import Vector
from weft.protocol.messages import (
    Ask,
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
)
from weft.protocol.outbox import Outbox
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import translate
from weft.yarn.asks import Expected, Request, RequestTable, norm
from weft.yarn.errors import (
    invalid_master_request,
    invalid_resource_request,
    no_attempt,
    not_registered,
    server_error,
)
from weft.yarn.stages import Left, parts
from weft.yarn.tokens import TokenKeeper, token

# Wall clock: after so long registrations and ends are sent again.
REPEAT_S = 2.0
# A registration or an end that the manager does not answer for so long is refused.
ANSWER_TIMEOUT_S = 60.0
# An `allocate` that asks for more waits so long for the first grants.
FIRST_GRANTS_WAIT_S = 0.1
RELEASES_PER_CALL_MAX = 100_000
BLACKLIST = 0
_GRANT_TOKEN_LIFE_MS = 600_000

Send = Callable[[Any], None]


class Site(NamedTuple):
    """What the master face must know of the cluster.

    `names` returns the resource types, `largest` the capacity of the largest node by resource,
    `total` that of all nodes that are up, `node` the address that YARN's clients know a node by,
    and `weft_node` the nodes that go by a host's name. `node_report` is what those are told of a
    node.
    """

    names: Callable[[], tuple[str, ...]]
    largest: Callable[[], dict[str, float]]
    node: Callable[[NodeId], Any]
    weft_node: Callable[[str], tuple[NodeId, ...]]
    nodes_up: Callable[[], int]
    total: Callable[[], Vector]
    http_address: Callable[[NodeId], str]
    node_states: Callable[[], Mapping[NodeId, str]]
    node_report: Callable[[NodeId], Any]


class ForeignMaster:
    """One attempt of a foreign master, between its calls and the manager's stream."""

    def __init__(
        self,
        attempt: AttemptId,
        cluster_ts: int,
        user: str,
        keeper: TokenKeeper,
        site: Site,
        send: Send,
        name: str = "",
        kind: str = "",
    ) -> None:
        self.attempt = attempt
        self.cluster_ts = cluster_ts
        self.user, self.name, self.kind = user, name, kind
        # Where the master's own pages are.
        self.tracking_url = ""
        # The final state that the master told, once the manager has it.
        self.done = ""
        self._keeper, self._site, self._send = keeper, site, send
        self._asks = RequestTable(site.names, site.weft_node)
        self._outbox: Outbox[int, Any] = Outbox(3.0)
        self._acks: list[int] = []
        self._unhanded_grants: list[tuple[ContainerId, NodeId, Request]] = []
        self._ended: list[ContainerEnd] = []
        self._unsent_preemption_warnings: set[ContainerId] = set()
        self._held: dict[ContainerId, NodeId] = {}
        self._seen: set[ContainerId] = set()
        # Nodes that were told to be in another state than RUNNING.
        self._told_states: dict[NodeId, str] = {}
        # Nodes whose token the master has.
        self._known_nodes: set[NodeId] = set()
        self._released: set[ContainerId] = set()
        # Containers that the master stopped through their node's face.
        self.stopped: set[ContainerId] = set()
        self._blacklisted_hosts: set[str] = set()
        self._blacklisted_nodes: tuple[NodeId, ...] = ()
        # The last answer to `allocate` is the answer to a repeated call.
        self._last_answer: Any = None
        self._response_id = 0
        self._headroom: dict[str, float] = {}
        self._queue = ""
        self._accepted: asyncio.Event = asyncio.Event()
        self._unregistered: asyncio.Event = asyncio.Event()
        self._news: asyncio.Event = asyncio.Event()
        self._registration: AttemptRegistered | None = None
        self._epoch = 0
        self._stop_reason = ""
        # Why the manager took no ask of the newest request that it refused.
        self._refusal, self._refused_request = "", 0
        self._progress = 0.0
        self._stages_left: Sequence[Left] | None = None
        self._task_cores_by_profile: Mapping[int, float] = {}

    # -- YARN's calls ------------------------------------------------------------------------------

    async def register(self, message: Any) -> Any:
        """Answer RegisterApplicationMaster."""
        if self._registration is not None and self._accepted.is_set():
            raise invalid_master_request(f"{self._name()} is registered already")
        port = message.rpc_port
        host = translate.address(message.host)[: translate.NAME_MAX]
        address = f"{host}:{port}" if host and port > 0 else ""
        self.tracking_url = translate.address(message.tracking_url)
        self._registration = AttemptRegistered(
            self.attempt, address, (), self.tracking_url, fresh=True
        )
        await self._until(self._accepted, lambda: self._registration)
        answer = pb.Registered(
            maximum=translate.floor_resource(self._site.largest()),
            queue=self._queue,
            scheduler_types=[0, 1],
        )
        answer.resource_types.add(name="memory-mb", units="Mi", type=0)
        answer.resource_types.add(name="vcores", units="", type=0)
        return answer

    async def allocate(self, message: Any) -> Any:
        """Answer Allocate: take the requests, hand over what was granted and what ended."""
        if self._stop_reason:
            raise no_attempt(f"{self._name()}: {self._stop_reason}")
        if self._registration is None or not self._accepted.is_set():
            raise not_registered(f"{self._name()} must register first")
        # A repeated call gets the answer again.
        if message.response_id + 1 == self._response_id and self._last_answer is not None:
            return self._last_answer
        if message.response_id != self._response_id:
            raise invalid_master_request(
                f"{self._name()} expected response id {self._response_id},"
                f" got {message.response_id}"
            )
        if len(message.releases) > RELEASES_PER_CALL_MAX:
            raise invalid_master_request(
                f"{self._name()} gives back {len(message.releases)} containers in one call,"
                f" at most {RELEASES_PER_CALL_MAX} can be"
            )
        told = message.progress
        self._progress = min(1.0, max(0.0, told)) if told == told else 0.0  # noqa: PLR0124 (NaN)
        for ask in self._asks.take(message.asks):
            self._outbox.put(ask.ask_id, ask)
        for one in message.releases:
            number = translate.read_container(one)
            if attempt_of_container(number) == self.attempt:
                self._released.add(number)
                self._outbox.put(number, number)
        if message.HasField("blacklist"):
            self._blacklisted_hosts |= set(message.blacklist.additions)
            self._blacklisted_hosts -= set(message.blacklist.removals)
        self._ban()
        self.beat()
        await self._linger()
        return self._hand_over(message)

    async def finish(self, message: Any) -> Any:
        """Answer FinishApplicationMaster: the end, with one of four final states."""
        if self._stop_reason and not self._unregistered.is_set():
            raise no_attempt(f"{self._name()}: {self._stop_reason}")
        known = 0 <= message.final_status < len(translate.FINAL_STATES)
        status = translate.FINAL_STATES[message.final_status] if known else "FAILED"
        verdict = AttemptFinished(
            self.attempt,
            status == "SUCCEEDED",
            message.diagnostics[:10_000],
            translate.address(message.tracking_url),
            "" if status == "UNDEFINED" else status,
        )
        await self._until(self._unregistered, lambda: verdict)
        self.done = status
        return pb.Finished(unregistered=True)

    # -- the manager's words -----------------------------------------------------------------------

    def hear(self, message: Any) -> None:
        """Take what the Resource Manager says to this attempt."""
        if isinstance(message, AttemptAccepted):
            self._epoch = message.epoch
            self._queue = message.job.queue.rpartition(".")[2]
            self._accepted.set()
        elif isinstance(message, ContainersGranted):
            self._hear_grants(message)
        elif isinstance(message, AttemptUnregistered):
            self._unregistered.set()
        elif isinstance(message, AttemptStopped):
            self._stop_reason = message.reason or "the attempt is over"
            self._accepted.set()
            self._news.set()

    def beat(self) -> None:
        """Say what changed, and what was not acknowledged in time."""
        if self._stop_reason or not self._accepted.is_set():
            return
        number, items = self._outbox.take(time.monotonic())
        asks = tuple(item for item in items if isinstance(item, Ask))
        releases = tuple(item for item in items if isinstance(item, int))
        lists = [item for item in items if isinstance(item, tuple) and not isinstance(item, Ask)]
        acks, self._acks = tuple(self._acks), []
        work, path_s = self._remaining()
        self._send(
            ContainersAsked(
                self.attempt,
                number,
                acks,
                asks,
                releases,
                self._progress,
                work,
                lists[-1] if lists else None,
                path_s,
                self._epoch,
            )
        )

    def follow(self, left: Sequence[Left] | None, cpus: Mapping[int, float] | None = None) -> None:
        """Take what is left of the master's own graph, as last seen; None: not known.

        `cpus` are the cores of one task by resource profile, 1 where nothing is said.
        """
        self._stages_left, self._task_cores_by_profile = left, cpus or {}
        expected: dict[int, Expected] = {}
        path_s = max((one.ends_s for one in left or ()), default=0.0)
        for profile, part in parts(left or ()).items():
            size, wanted = self._asks.of_priority(profile)
            share_s = part.task_s / (self._slots(profile, size) * max(1, wanted))
            # held until the part is done, by all that are wanted of it, and no shorter than a path
            duration_s = max(share_s, path_s - part.begins_s)
            score = 1.0 - part.begins_s / path_s if path_s > 0 else 1.0
            expected[profile] = Expected(max(1.0, duration_s), max(0.01, score))
        for ask in self._asks.expect(expected):
            self._outbox.put(ask.ask_id, ask)

    def _slots(self, profile: int, size: Mapping[str, float]) -> float:
        """Return how many tasks an executor runs at a time."""
        return max(
            1.0,
            size.get(translate.CORES, 1.0)
            // max(1.0, self._task_cores_by_profile.get(profile, 1.0)),
        )

    def _remaining(self) -> tuple[float, float]:
        """Return remaining work and remaining path, as Weft's own masters tell them."""
        total = self._site.total()
        if self._stages_left is None:
            return self._asks.work(total), 0.0
        work = 0.0
        for profile, part in parts(self._stages_left).items():
            size, _ = self._asks.of_priority(profile)
            of_task = norm(size, self._site.names(), total) / self._slots(profile, size)
            work += part.task_s * of_task
        return work, max((one.ends_s for one in self._stages_left), default=0.0)

    @property
    def owes(self) -> bool:
        """Whether something was not acknowledged yet."""
        return bool(self._outbox.unacknowledged or self._outbox.fresh or self._acks)

    def _hear_grants(self, message: ContainersGranted) -> None:
        if message.resync:
            if message.epoch != self._epoch and self._registration is not None:
                self._again(message.epoch)
            return
        self._acks.append(message.response_id)
        self._outbox.acknowledge(message.acks)
        if message.headroom:
            self._headroom = dict(zip(self._site.names(), message.headroom, strict=False))
        for item in message.containers:
            if item.container_id in self._seen:
                continue
            self._seen.add(item.container_id)
            request = self._asks.granted(item.ask_id)
            # Nothing waits for what an earlier attempt asked for.
            if request is None:
                self._outbox.put(item.container_id, item.container_id)
                continue
            self._held[item.container_id] = item.node_id
            self._unhanded_grants.append((item.container_id, item.node_id, request))
            self._news.set()
        self._unsent_preemption_warnings.update(notice.container_id for notice in message.preempt)
        for one in message.refused:
            # It is said again until its answer is acknowledged.
            if one.request_id > self._refused_request:
                self._refusal, self._refused_request = one.reason, one.request_id
                for ask_id in one.asks:
                    self._asks.refuse(ask_id)
                self._news.set()
        for end in message.ended:
            if -end.container_id not in self._seen:
                self._seen.add(-end.container_id)
                self._held.pop(end.container_id, None)
                self._ended.append(end)

    def _again(self, epoch: int) -> None:
        """Register as before after the manager's restart, and say requests under new ids."""
        assert self._registration is not None
        self._epoch = epoch
        held = tuple(self._held.items())
        again = self._registration
        self._send(AttemptRegistered(self.attempt, again.address, held, again.tracking_url))
        self._outbox = Outbox(3.0)
        self._refused_request = 0
        self._acks.clear()
        for ask in self._asks.renumber():
            self._outbox.put(ask.ask_id, ask)
        for number in self._released & self._held.keys():
            self._outbox.put(number, number)
        self._blacklisted_nodes = ()
        self._ban()

    def _ban(self) -> None:
        """Tell which nodes the master's black list means, where that changed."""
        names = tuple(
            sorted({n for host in self._blacklisted_hosts for n in self._site.weft_node(host)})
        )
        if names != self._blacklisted_nodes:
            self._blacklisted_nodes = names
            self._outbox.put(BLACKLIST, names)

    async def _linger(self) -> None:
        """Give the manager a moment to answer, where containers are outstanding."""
        if self._asks.waits and not self._unhanded_grants and not self._ended:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), FIRST_GRANTS_WAIT_S)
        if self._stop_reason:
            raise no_attempt(f"{self._name()}: {self._stop_reason}")
        if self._refusal:
            refusal, self._refusal = self._refusal, ""
            raise invalid_resource_request(f"Invalid resource request! {refusal}")

    # -- answers -----------------------------------------------------------------------------------

    def _hand_over(self, message: Any) -> Any:
        self._response_id += 1
        answer = pb.Allocated(
            response_id=self._response_id,
            nodes=self._site.nodes_up(),
            limit=translate.floor_resource(self._headroom),
        )
        granted, self._unhanded_grants = self._unhanded_grants, []
        for number, node, request in granted:
            request.handed += 1
            # YARN's manager lowers its own count with every grant, and the master says the
            # lowered number when it next changes
            request.outstanding = max(0, request.outstanding - 1)
            if number in self._held:
                answer.containers.append(self._container(number, node, request))
                if node not in self._known_nodes:
                    self._known_nodes.add(node)
                    owner = translate.attempt(self.cluster_ts, self.attempt)
                    place = self._site.node(node)
                    made = token(self._keeper.node(owner, place, self.user))
                    answer.node_tokens.append(pb.NodeToken(node=place, token=made))
        answer.updated_nodes.extend(self._updated_nodes())
        ended, self._ended = self._ended, []
        for end in ended:
            answer.completed.append(self._completed(end))
        warned, self._unsent_preemption_warnings = (
            self._unsent_preemption_warnings & self._held.keys(),
            set(),
        )
        for number in sorted(warned):
            answer.preempt.strict.containers.add(id=translate.container(self.cluster_ts, number))
        for update in message.updates:
            answer.update_errors.add(
                reason="RESOURCE_UPDATES_ARE_NOT_SUPPORTED", request=update, version=update.version
            )
        self._last_answer = answer
        return answer

    def _updated_nodes(self) -> list[Any]:
        """Return reports of nodes that were lost, or are back: their outputs may be gone."""
        reports = []
        for node, state in self._site.node_states().items():
            if state != self._told_states.get(node, "RUNNING") and state != "NEW":
                self._told_states[node] = state
                reports.append(self._site.node_report(node))
        return reports

    def _container(self, number: ContainerId, node: NodeId, request: Request) -> Any:
        key, now_ms = request.key, int(time.time() * 1000)
        size = translate.resource(dict(key.size))
        identity = translate.container(self.cluster_ts, number)
        place = self._site.node(node)
        priority = pb.Priority(priority=key.priority)
        identifier = pb.ContainerTokenIdentifier(
            container=identity,
            node_address=f"{place.host}:{place.port}",
            submitter=self.user,
            resource=size,
            expiry_time=now_ms + _GRANT_TOKEN_LIFE_MS,
            manager=self.cluster_ts,
            priority=priority,
            creation_time=now_ms,
            container_type=2,
            allocation_request_id=key.allocation_id,
            execution_type=1,
        )
        made = token(self._keeper.container(identifier), f"{place.host}:{place.port}")
        return pb.Container(
            id=identity,
            node=place,
            node_http_address=self._site.http_address(node),
            resource=size,
            priority=priority,
            container_token=made,
            execution_type=1,
            allocation_request_id=key.allocation_id,
            version=0,
        )

    def _completed(self, end: ContainerEnd) -> Any:
        number = end.container_id
        status, words = translate.exit_status(
            end, released=number in self._released, stopped=number in self.stopped
        )
        self._released.discard(number)
        self.stopped.discard(number)
        return pb.ContainerStatus(
            container=translate.container(self.cluster_ts, number),
            state=translate.CONTAINER_COMPLETE,
            diagnostics=words,
            exit_status=status,
        )

    # -- helpers -----------------------------------------------------------------------------------

    async def _until(self, done: asyncio.Event, message: Callable[[], Any]) -> None:
        """Say a message until it is answered; raises for an attempt that is over."""
        give_up = time.monotonic() + ANSWER_TIMEOUT_S
        while not done.is_set() and not self._stop_reason:
            self._send(message())
            try:
                await asyncio.wait_for(done.wait(), REPEAT_S)
            except TimeoutError:
                if time.monotonic() > give_up:
                    raise server_error("the Resource Manager does not answer") from None
        if self._stop_reason and not self._unregistered.is_set():
            raise no_attempt(f"{self._name()}: {self._stop_reason}")

    @property
    def app_name(self) -> str:
        """The application's id as text."""
        return format_app(self.cluster_ts, app_of_attempt(self.attempt))

    def _name(self) -> str:
        made = translate.attempt(self.cluster_ts, self.attempt)
        app = made.application
        return f"appattempt_{app.cluster_timestamp}_{app.id:04d}_{made.attempt:06d}"
