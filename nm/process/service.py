"""Node managers on the wire: many nodes share one process, one port and one stream."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nm.core import ASKED_TO_STOP, BOOT_MAX, NodeManager
from nm.making import NodeParts
from nm.process.cgroups import find
from nm.process.disks import MB, UNHEALTHY_HOLD_S, Disk, Health
from nm.process.health import examine
from nm.process.host import ProcessHost
from nm.process.idling import IdleNodes
from nm.process.isolation import Isolation, isolation
from nm.process.keeping import Keeper
from nm.process.leftovers import Strays, adopt, kill_orphans
from nm.process.limits import DISK_RESOURCE, Limits
from nm.process.masters import HostedMasters, ProcessMasters
from nm.process.metrics import NodeMetrics
from nm.process.records import Record, Records
from nm.process.spawning import usual_spawners
from nm.process.tokens import NodeTokens
from nm.settings import Mode, NodeSettings
from weft.model.cluster import NodeSpec
from weft.model.errors import InputError
from weft.model.ids import AppId, AttemptId, ContainerId, NodeId, attempt_of_container
from weft.model.resources import ResourceTypes
from weft.protocol.effects import (
    ContainersMeasured,
    FoundProcess,
    Heard,
    NodeExamined,
    ProcessEnded,
    ProcessesFound,
    Started,
    StopRequested,
)
from weft.protocol.facts import Fact, RunFact
from weft.protocol.messages import (
    EMULATED,
    MANAGER,
    Address,
    MasterLaunch,
    NodeAccepted,
    Outcome,
    StartContainers,
    StopContainers,
    TaskLaunch,
    master_address,
    node_address,
    started_by,
)
from weft.runtime.commands import RUNNING
from weft.runtime.interfaces import Outside
from weft.runtime.process import Process
from weft.runtime.removing import Left
from weft.runtime.role_settings import NmSettings
from weft.runtime.shell import Core, Shell
from weft.wire.connections import tracker_stream
from weft.wire.idle import IdleHeard
from weft.wire.outbound_queues import Lane
from weft.wire.server import Server
from weft.wire.services import add_container_service, begun_within_s
from weft.wire.tokens import KeysTold, Shown, TimeTold
from weft.wire.validator import Gate

T = TypeVar("T")
FOLLOWED_ATTEMPTS_MAX = 10_000
# Wall clock between two measurements of what containers use.
MEASURE_S = 1.0
LACKING_CHARACTERS_MAX = 2_000
# A disk that does not answer in so long, in wall clock time, counts as broken.
DISK_TIMEOUT_S = 10.0
LOG_THREADS = 2
LOG_MESSAGE_BYTES = 1 << 18


class NodeService(Outside):
    """Drives the nodes of one process and connects them."""

    def __init__(
        self,
        process: Process,
        settings: NmSettings,
        server: Server,
        kept_apart: Isolation | None = None,
    ) -> None:
        """`kept_apart`: how tasks are, as `isolation_of` found."""
        self._process = process
        self._settings = settings
        self._metrics = NodeMetrics(process.exposition)
        name = settings.node_name or str(settings.first_node)
        self.shell = Shell(
            process.clock,
            self,
            meter=process.exposition.meter,
            checked=settings.check,
            tape=process.record(f"nm-{name}"),
            leaves_out=_says_nothing,
        )
        self._idle = IdleNodes()
        self._tokens = NodeTokens(self._holds)
        self._stream = tracker_stream(
            settings.manager,
            self._from_manager,
            process.link_log("Resource Manager", settings.manager),
            self._dropped,
            self._tokens.greeting,
        )
        self._followers: dict[str, Lane] = {}
        self._follower_of: dict[AttemptId, str] = {}
        # The node of each container, and how many of its processes did not end.
        self._launched: dict[ContainerId, tuple[Address, int]] = {}
        self._masters: HostedMasters | ProcessMasters
        self._processes: ProcessHost | None = None
        self._keeper: Keeper | None = None
        self._health = Health((), self._examined)
        # Until then, by the loop's clock, starts fail here.
        self._faulty_until_s = 0.0
        self._isolation = kept_apart
        self._lacking = list(kept_apart.lacking) if kept_apart is not None else []
        for problem in self._lacking:
            process.log.warning("tasks are not kept apart", reason=problem)
        # file-system work whose size a task chose is done on threads
        self._readers = ThreadPoolExecutor(LOG_THREADS, "reader")
        self._hosted = 0
        self._gate = Gate(process.tell_refused, process.count_refused)
        add_container_service(server, self, self._gate, begun_within_s(process.clock.wall_s))

    # -- life --------------------------------------------------------------------------------------

    def start(self, specs: Sequence[NodeSpec], types: ResourceTypes, address: str) -> None:
        """Connect and start the nodes; `address` is where masters reach them."""
        settings = self._settings
        found: list[Record] = []
        ends: list[ProcessEnded] = []
        self._health = Health([spec.node_id for spec in specs], self._examined)
        if settings.mode == "process" or settings.launch == "process":
            root = Path(settings.work_dir) / specs[0].node_id
            records = Records(root.resolve()) if settings.recovery else None
            self._processes = ProcessHost(
                root,
                self._ended,
                limits=self._limits(specs, types),
                records=records,
                isolation=self._isolation,
                spawners=settings.spawners or usual_spawners(),
                on_fault=self._at_fault,
                whitelist=settings.env_whitelist,
            )
            disk = Disk(root.resolve(), settings.disk_full_percent, settings.disk_free_mb)
            self._process.spawn(self._look_at(disk))
            found, ends = self._processes.find()
            killed = kill_orphans(root, {record.pid for record in found})
            if killed:
                self._process.log.warning("killed what an earlier run left", processes=len(killed))
            self._keep(self._processes, found)
            self._process.spawn(self._forget())
            if adopt():
                self._process.spawn(self._collect(self._processes))
        if settings.launch == "hosted":
            process = self._process
            self._masters = HostedMasters(
                settings.am_host,
                self._ended,
                process.link_log("AM host", settings.am_host),
                self._tokens.master,
            )
            self._process.spawn(self._masters.stream.run())
        else:
            assert self._processes is not None
            self._masters = ProcessMasters(self._processes, settings, self._tokens.master)
        core_settings = NodeSettings(
            mode=Mode(settings.mode),
            register_retry_s=settings.register_retry_s,
            resend_after_s=settings.resend_after_s,
            report_tasks=True,
        )
        for number, spec in enumerate(specs):
            parts = NodeParts(
                spec.node_id,
                address,
                types.mapping(spec.capacity),
                spec.rack,
                spec.labels,
                replace(core_settings, speed=core_settings.speed * spec.speed),
                (settings.seed, settings.first_node + number),
                boot=1 + secrets.randbelow(BOOT_MAX),
                lacking="; ".join(self._lacking)[:LACKING_CHARACTERS_MAX],
                files=self._processes is not None,
            )
            address_of = node_address(spec.node_id)
            self.shell.add(address_of, parts.make(), parts)
            if own := [record for record in found if record.node == spec.node_id]:
                self._take_back(address_of, own)
        self._begin(specs, ends)
        # Processes of a node that this process does not host any more are stopped.
        for record in found:
            if record.container_id not in self._launched and self._processes is not None:
                self._processes.stop(record.container_id)
        self._hosted = len(specs)
        self._metrics.hosted(self._hosted)
        if settings.health_script is not None:
            script = settings.health_script
            self._process.spawn(self._examine(script, [spec.node_id for spec in specs]))
        self._process.spawn(self._stream.run())
        self._process.spawn(self.shell.run())

    def _keep(self, host: ProcessHost, found: Sequence[Record]) -> None:
        """Have files of applications that are over go when they are due, and those of before."""
        settings, clock = self._settings, self._process.clock
        account = None if self._isolation is None else self._isolation.account
        self._keeper = Keeper(
            host.root,
            log_retain_s=clock.wall_s(settings.log_retain_s),
            log_bytes=int(settings.log_size_mb * MB),
            debug_delay_s=clock.wall_s(settings.debug_delay_s),
            owner=None if account is None else (account.uid, account.gid),
            warn=self._tell_left,
        )
        kept: dict[str, list[str]] = {}
        for record in found:
            folder = host.folder(record.container_id)
            kept.setdefault(folder.parent.name, []).append(folder.name)
        self._keeper.begin(kept)
        self._process.spawn(self._keeper.sweep(host.applications))
        self._process.spawn(self._keeper.bound(host.folders))

    def _tell_left(self, application: str, left: Left) -> None:
        self._process.log.warning(
            "files cannot be removed", application=application, files=left.count, first=left.first
        )

    def _begin(self, specs: Sequence[NodeSpec], ends: Sequence[ProcessEnded]) -> None:
        """Start the nodes; what ended of tasks that they were given comes before they say so."""
        self._ended([end for end in ends if end.task >= 0])
        for spec in specs:
            self.shell.post(node_address(spec.node_id), Started())
        # a node that is back without its master is taken for one that had none
        self._ended([end for end in ends if end.task < 0])

    def _take_back(self, node: Address, records: Sequence[Record]) -> None:
        """Have a node hold what an earlier process of it started; it registers with that."""
        items: list[FoundProcess] = []
        clock = self._process.clock
        for one in records:
            item: TaskLaunch | MasterLaunch
            if one.master:
                item = MasterLaunch(one.container_id, one.master, one.demand)
            else:
                item = TaskLaunch(
                    one.container_id,
                    one.stage,
                    one.task,
                    one.attempt,
                    one.duration_s,
                    one.demand,
                    reusable=one.reusable,
                    granted=one.granted,
                )
            _, count = self._launched.get(one.container_id, (node, 0))
            self._launched[one.container_id] = (node, count + 1)
            began_s = clock.now() - (time.time() - one.began_s) * clock.time_scale
            items.append(FoundProcess(item, began_s, one.taken_by))
        self._process.log.info("found what an earlier run left", processes=len(items))
        self._metrics.found(len(items))
        self.shell.post(node, ProcessesFound(tuple(items)))

    async def _examine(self, script: Path, names: Sequence[str]) -> None:
        """Have the health script look at every node now and then, one after the other."""
        settings, clock = self._settings, self._process.clock
        while True:
            for name in names:
                environment = {**os.environ, "WEFT_NODE": name}
                timeout_s = clock.wall_s(settings.health_timeout_s)
                report = await examine(script, settings.health_args, timeout_s, environment)
                self._health.say("script", report, name)
            await asyncio.sleep(clock.wall_s(settings.health_interval_s))

    async def _look_at(self, disk: Disk) -> None:
        """Have a node without room for what tasks write start none, until there is room again."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                # Where no thread can be started, `run_in_executor` raises RuntimeError.
                look = loop.run_in_executor(None, disk.look)
            except RuntimeError:
                self._at_fault("this host has no process or thread left")
                await asyncio.sleep(MEASURE_S)
                continue
            done, _ = await asyncio.wait([look], timeout=DISK_TIMEOUT_S)
            self._health.say("disk", look.result() if done else "its disk does not answer")
            if loop.time() >= self._faulty_until_s:
                self._health.say("starts", "")
            await look
            await asyncio.sleep(MEASURE_S)

    def _at_fault(self, why: str) -> None:
        """Have the nodes be unhealthy for a while: something could not be started here."""
        self._faulty_until_s = asyncio.get_running_loop().time() + UNHEALTHY_HOLD_S
        self._health.say("starts", why)

    def _examined(self, name: str, report: str) -> None:
        """Tell a node that its health is another one."""
        if report:
            self._process.log.warning("unhealthy", node=name, report=report)
        else:
            self._process.log.info("healthy again", node=name)
        self.shell.post(node_address(name), NodeExamined(report))

    async def _forget(self) -> None:
        """Forget what is written down of ended processes once the manager has learned of them."""
        while True:
            await asyncio.sleep(MEASURE_S)
            cores = [self.shell.core(address) for address in self.shell.addresses]
            owed = any(isinstance(core, NodeManager) and core.owes for core in cores)
            if self._processes is not None:
                self._processes.forget(heard=not owed)
                self._processes.keep_taken(self._launched.__contains__)

    async def _collect(self, host: ProcessHost) -> None:
        """End what ended containers left behind in hiding."""
        strays = Strays(lambda: host.pids | RUNNING)
        while True:
            await asyncio.sleep(MEASURE_S)
            killed = strays.sweep(host.holds)
            if killed:
                self._process.log.info("killed what tasks left behind", processes=len(killed))

    def _limits(self, specs: Sequence[NodeSpec], types: ResourceTypes) -> Limits | None:
        """Return how this host's tasks are limited and measured; log once where they are not."""
        if self._settings.mode != "process":
            return None
        groups, reason = (None, "switched off")
        if self._settings.cgroups == "auto":
            groups, reason = find(specs[0].node_id, work=Path(self._settings.work_dir))
        if groups is not None:
            groups.cpu_by_share = self._settings.cpu_limit == "share"
        if groups is not None and groups.why_no_disk_limit and DISK_RESOURCE in types.names:
            self._process.log.warning(
                "disk bandwidth is not limited", reason=groups.why_no_disk_limit
            )
        if groups is None:
            self._process.log.warning("tasks run without limits", reason=reason)
            if self._settings.cgroups == "auto":
                self._lacking.append(f"no limits of tasks: {reason}")
        self._process.spawn(self._measure(node_address(specs[0].node_id)))
        return Limits(types.names, groups, self._settings.task_processes_max)

    async def _measure(self, node: Address) -> None:
        """Tell the node now and then what its containers use."""
        while True:
            await asyncio.sleep(MEASURE_S)
            if self._processes is None:
                continue
            began_s = time.perf_counter()
            use = self._processes.measure()
            self._metrics.monitored(time.perf_counter() - began_s)
            if use:
                self.shell.post(node, ContainersMeasured(use))

    async def close(self) -> None:
        """Leave in order: the manager is notified, and no process stays behind."""
        for address in self.shell.addresses:
            self.shell.post(address, StopRequested())
        for _ in range(200):
            if not self.shell.addresses:
                break
            await asyncio.sleep(0.01)
        if self._processes is not None:
            await self._processes.close(1.0)
        if self._keeper is not None:
            self._keeper.close()
        self._readers.shutdown(wait=False, cancel_futures=True)
        if isinstance(self._masters, HostedMasters):
            await self._masters.stream.drain(0.5)
        await self._stream.drain(1.0)

    # -- in ----------------------------------------------------------------------------------------

    def _from_manager(self, batch: list[Any]) -> None:
        for given in batch:
            if isinstance(given, Shown | KeysTold | TimeTold):
                self._tokens.take(given)
            elif isinstance(given, IdleHeard):
                self._idle.hear(given)
        words = Shown | KeysTold | TimeTold | IdleHeard
        told = [one for one in batch if not isinstance(one, words)]
        for message in self._gate.sift(told, 0, self._settings.manager):
            if isinstance(message, NodeAccepted) and self._processes is not None:
                self._processes.follow(message.cluster_ts, message.types.names)
            self._tell(node_address(message.node_id), message)

    def _tell(self, address: Address, event: Any, *more: Any) -> None:
        """Pass an order to a node; it may obey by its last acknowledged heartbeat."""
        if (at_s := self._idle.news_for(address)) is not None:
            self.shell.post(address, Heard(at_s))
        self.shell.post(address, event, *more)

    def idle(self, cores: Sequence[Address]) -> None:
        """Tell the manager of nodes that have nothing to say."""
        now, waiting = self._process.clock.now(), self._stream.waiting
        self._stream.send(list(self._idle.tell(cores, now, waiting)))

    def _dropped(self, lost: int) -> None:
        text = "Messages to peers that are not connected"
        self._process.exposition.count("weft_messages_undeliverable", text, lost)

    def _ended(self, events: Sequence[ProcessEnded]) -> None:
        ends: dict[Address, list[ProcessEnded]] = {}
        for event in events:
            address, left = self._launched.pop(event.container_id, ("", 0))
            if left > 1:
                self._launched[event.container_id] = (address, left - 1)
            if left:
                ends.setdefault(address, []).append(event)
        for address, some in ends.items():
            self.shell.post_all(address, some)

    # -- calls of masters --------------------------------------------------------------------------

    def _holds(self, node: NodeId, container: ContainerId) -> bool:
        address = node_address(node)
        core = self.shell.core(address) if address in self.shell else None
        return isinstance(core, NodeManager) and core.holds(container)

    async def carry_out(
        self, follower: str, orders: list[Any], shown: Sequence[bytes] = (), peer: str = ""
    ) -> list[Any]:
        """Hand a call's orders to the nodes; returns what they answer to this caller."""

        def refuse(message: str, problem: str) -> None:
            self._gate.refuse(message, peer, InputError("token", problem))

        answers: list[Any] = []
        orders, refused = self._tokens.sift(orders, shown, refuse)
        answers.extend(refused)
        done = asyncio.get_running_loop().create_future()
        left = len(orders)

        def collect(address: Address, to: Address, message: Any) -> bool:
            if to != address:
                return False
            answers.append(message)
            return True

        def handled() -> None:
            nonlocal left
            left -= 1
            if left == 0 and not done.done():
                done.set_result(None)

        for order in orders:
            self._follow(order.attempt_id, follower)
            asker = master_address(order.attempt_id)
            self._tell(node_address(order.node_id), order, partial(collect, asker), handled)
        if orders:
            await done
        if self._processes is not None:
            for order in orders:
                self._note_takers(self._processes, order)
        return answers

    def _note_takers(self, processes: ProcessHost, order: Any) -> None:
        """Write down which containers an order took over, before it is answered."""
        address = node_address(order.node_id)
        core = self.shell.core(address) if address in self.shell else None
        if not isinstance(core, NodeManager) or isinstance(order, StopContainers):
            return
        starts = isinstance(order, StartContainers)
        for item in order.items if starts else order.containers:
            for container in started_by(item) if starts else (item,):
                owner = core.owner_of(container)
                if owner and owner != attempt_of_container(container):
                    processes.taken_over(container, owner)

    def _follow(self, attempt: AttemptId, follower: str) -> None:
        known = self._follower_of
        if known.get(attempt) != follower:
            known[attempt] = follower
            if len(known) > FOLLOWED_ATTEMPTS_MAX:
                del known[next(iter(known))]

    def follow(self, follower: str, lane: Lane) -> None:
        """Tell a caller what happens in its containers without being asked."""
        self._followers[follower] = lane

    def may_read(self, node: str, container: ContainerId, token: bytes) -> str:
        """Return why a token is no leave to read what a container wrote; empty: it is."""
        return self._tokens.may_read(node, container, token)

    async def read_log(
        self, node: str, container: ContainerId, stream: str, skip: int = 0
    ) -> AsyncIterator[tuple[bytes, int]]:
        """Yield what the commands of a container wrote so far, but for `skip` bytes at its begin.

        With each piece comes the number to skip for the next one. Raises InputError if
        nothing is there.
        """
        host, loop = self._processes, asyncio.get_running_loop()

        async def apart(act: Callable[..., T], *words: Any) -> T:
            return await loop.run_in_executor(self._readers, act, *words)

        if host is None:
            raise InputError("container", f"on node {node!r} tasks are {EMULATED}")
        names = await apart(host.logs, container)
        found = [name for name in names if name.rpartition("/")[2] == stream]
        if not found:
            raise InputError("container", f"node {node!r} has no {stream} of this container")
        before = 0
        for name in found:
            size = await apart(host.log_size, container, name)
            offset, skip = skip, max(0, skip - size)
            while True:
                read = (host.read_log, container, name, offset, LOG_MESSAGE_BYTES)
                data, after = await apart(*read)
                if not data:
                    break
                offset = after
                yield data, before + offset
            before += size

    # -- out ---------------------------------------------------------------------------------------

    def send(self, sends: Sequence[tuple[Address, Any]]) -> None:
        """Send to the manager in one batch, to masters over the streams of their containers."""
        self._process.flush()
        to_manager: list[Any] = []
        for to, message in sends:
            if to == MANAGER:
                to_manager.append(message)
                continue
            follower = self._follower_of.get(message.attempt_id, "")
            lane = self._followers.get(follower)
            if lane is None or lane.closed:
                self._followers.pop(follower, None)
                self._dropped(1)
            else:
                lane.send((message,))
        if to_manager:
            self._stream.send(to_manager)

    def launch(self, core: Address, item: TaskLaunch | MasterLaunch) -> None:
        """Start a master, or a task's command; or those of a run."""
        for container in started_by(item) if isinstance(item, TaskLaunch) else (item.container_id,):
            _, launched = self._launched.get(container, (core, 0))
            self._launched[container] = (core, launched + 1)
        if isinstance(item, MasterLaunch) and item.command:
            self._start_foreign(item, core.partition(":")[2])
        elif isinstance(item, MasterLaunch):
            self._masters.start(item, core.partition(":")[2])
        else:
            assert self._processes is not None
            self._processes.start(item, core.partition(":")[2])

    def _start_foreign(self, item: MasterLaunch, node: str) -> None:
        """Run a master that its job brought along, like any task's command: under its limits."""
        if self._processes is None or self._settings.mode != "process":
            message = "an emulated node runs no commands, so no master that a job brings along"
            end = ProcessEnded(item.container_id, Outcome.FAILED, 126, message)
            asyncio.get_running_loop().call_soon(self._ended, [end])
            return
        variables = {**dict(item.environment), "WEFT_NODE": node}
        self._processes.run(
            item.container_id, item.command, variables, demand=item.demand, item=item, node_id=node
        )

    def kill(self, core: Address, container: ContainerId) -> None:
        """Stop what runs in a container; its end follows."""
        if not self._masters.stop(container) and self._processes is not None:
            self._processes.stop(container)

    def clean(self, core: Address, app: AppId) -> None:
        """Remove what an application that is over left on this host, but for logs."""
        if self._processes is not None and self._keeper is not None:
            host = self._processes
            self._keeper.over(host.application(app), host.running(app))

    def note(self, core: Address, fact: Fact | RunFact, now: float) -> None:
        """Log and count."""
        self._process.note(fact, now)
        self._metrics.note(fact)

    def stopped(self, core: Address, reason: str) -> None:
        """Drop a node that left; a process without nodes ends."""
        if reason != ASKED_TO_STOP:
            self._process.log.warning("a node leaves", node=core, reason=reason)
        self._gone(core)
        if not self._hosted:
            self._process.end()

    def failed(self, core: Address, error: Exception) -> None:
        """Drop a node that failed: it goes silent and is LOST, as a crashed host would be."""
        self._process.log.error("a node failed", node=core, exc_info=error)
        self._gone(core)
        if not self._hosted:
            self._process.end(error)

    def _gone(self, core: Address) -> None:
        self._hosted -= 1
        self._metrics.hosted(self._hosted)
        self._metrics.gone(core.partition(":")[2])
        self._idle.news_for(core)


def _says_nothing(core: Core) -> bool:
    return isinstance(core, NodeManager) and core.silent


def isolation_of(settings: NmSettings, node: str) -> Isolation | None:
    """Return how a node's tasks are to be kept apart; raises InputError where it cannot."""
    if settings.mode != "process":
        return None
    hidden = [Path(path) for path in (settings.tls_key, *settings.hide) if path]
    return isolation(
        Path(settings.work_dir) / node,
        user=settings.task_user,
        sandbox=settings.sandbox,
        network=settings.task_network == "host",
        hidden=hidden,
    )
