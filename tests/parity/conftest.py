"""The live shell on a stepped clock: the services' loop without sockets and without waiting.

Three live shells (manager, masters, nodes) share one asyncio loop whose time is virtual: it jumps
to the next timer when nothing is left to do. Messages pass through the codec as bytes and arrive
after the same seeded delays as in the simulator, so that no two things happen at one instant and
the order of things is a matter of the cores only.
"""

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.process.planning import make_plan
from am.settings import MasterSettings
from nm.core import NodeManager
from nm.settings import NodeSettings
from rm.core import ResourceManager
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from sim.faults import FaultKind
from sim.network import Network
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec
from weft.model.ids import ContainerId
from weft.model.job import Job
from weft.protocol.effects import ClientRequested, MakePlan, ProcessEnded, Recovered, Started
from weft.protocol.facts import AppChanged, Fact, RunFact, facts_of
from weft.protocol.messages import (
    MANAGER,
    Address,
    MasterLaunch,
    Outcome,
    StartContainers,
    StopContainers,
    TaskLaunch,
    master_address,
    node_address,
)
from weft.protocol.requests import SetQueues, SubmitApplication
from weft.runtime.interfaces import Outside
from weft.runtime.shell import Shell
from weft.wire import codec

UNTIL_S = 1e6  # virtual time: a run that takes longer hangs
ENDED = {"FINISHED", "FAILED", "KILLED"}
MASTER, NODE, CLIENT = "am:", "node:", "client:"


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while there is work, and else jumps to a timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._clock_resolution = 1e-12

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._now_s = max(self._now_s, scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Work of other threads is done at once: time must not jump while it is under way."""
        done = self.create_future()
        done.set_result(func(*args))
        return done


class SteppedClock:
    """The cluster's clock is the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time

    def wall_s(self, delay_s: float) -> float:
        return delay_s


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.records += records


def over_the_wire(source: Address, to: Address, message: Any) -> Any:
    """A message as its receiver decodes it from bytes."""
    if source.startswith(CLIENT):
        call = codec.CALLS[type(message.request)]
        sent = call.encode_request(message.request).SerializeToString()
        request = call.decode_request(call.request_type.FromString(sent))
        return ClientRequested(message.token, request)
    if MANAGER in (to, source):
        of_node = (to if source == MANAGER else source).startswith(NODE)
        if source == MANAGER:
            encode = codec.encode_node_orders if of_node else codec.encode_master_orders
            decode = codec.decode_node_orders if of_node else codec.decode_master_orders
        else:
            encode = codec.encode_node_reports if of_node else codec.encode_master_reports
            decode = codec.decode_node_reports if of_node else codec.decode_master_reports
    elif source.startswith(NODE):
        encode, decode = codec.encode_answers, codec.decode_answers
    elif isinstance(message, StartContainers):
        encode, decode = (lambda batch: codec.encode_starts("", batch)), codec.decode_starts
    else:
        stop = isinstance(message, StopContainers)
        encode = lambda batch: codec.encode_containers("", batch)  # noqa: E731
        decode = codec.decode_stops if stop else codec.decode_queries
    sent = encode([message])
    [received] = decode(type(sent).FromString(sent.SerializeToString()))
    return received


class LiveCluster:
    """All roles behind live shells; `facts` is what they noted, as (now, fact)."""

    def __init__(
        self, cluster: ClusterSpec, jobs: Sequence[Job], settings: SimSettings, loop: SteppedLoop
    ) -> None:
        self.cluster = cluster
        self.jobs = jobs
        self.settings = settings
        self.loop = loop
        self.facts: list[tuple[float, Fact]] = []
        self.store = Kept()
        self.network = Network(settings.faults.network, settings.seed)
        clock: Any = SteppedClock(loop)
        self.shells = {
            role: Shell(
                clock,
                _Side(self),
                self.store if role == MANAGER else None,
                checked=True,
                exact=True,
            )
            for role in (MANAGER, NODE, MASTER)
        }
        self.containers: dict[Address, tuple[ContainerId, Address]] = {}
        self.left = len(jobs)

    def shell_of(self, address: Address) -> Shell:
        kind = address if address == MANAGER else address.partition(":")[0] + ":"
        return self.shells[kind]

    def start(self) -> None:
        settings, cluster = self.settings, self.cluster
        manager = ResourceManager(
            0,
            cluster.types,
            cluster.queues,
            make_matcher(settings.scheduler.matcher, settings.scheduler.matcher_options),
            ManagerSettings(prompt=settings.prompt),
            np.random.default_rng([settings.seed, 1, 1]),
        )
        self.shells[MANAGER].add(MANAGER, manager)
        self.shells[MANAGER].post(MANAGER, Recovered())
        for number, spec in enumerate(cluster.nodes, 1):
            node = NodeManager(
                spec.node_id,
                "nm:8041",
                cluster.types.mapping(spec.capacity),
                spec.rack,
                spec.labels,
                NodeSettings(speed=spec.speed),
                np.random.default_rng([settings.seed, 2, number, 1]),
            )
            self.shells[NODE].add(node_address(spec.node_id), node)
            self.shells[NODE].post(node_address(spec.node_id), Started())
        for number, job in enumerate(self.jobs):
            request = ClientRequested(str(number), SubmitApplication(job, f"job-{number}"))
            self.loop.call_at(job.arrival_s, self.carry, f"{CLIENT}{number}", MANAGER, request)

        for fault in self.settings.faults.script:
            if fault.kind is FaultKind.QUEUES:
                wanted = ClientRequested("operator", SetQueues(fault.queues))
                told = over_the_wire(CLIENT, MANAGER, wanted)
                self.loop.call_at(fault.at_s, self.shells[MANAGER].post, MANAGER, told)

    def carry(self, source: Address, to: Address, message: Any) -> None:
        """One message on its way; nobody there: it is lost."""
        if to.startswith(CLIENT) or to not in self.shell_of(to):
            return
        received = over_the_wire(source, to, message)
        for delay_s in self.network.delays(source, to, "", ""):
            self.loop.call_at(self.loop.time() + delay_s, self.shell_of(to).post, to, received)

    def launch(self, node: Address, item: MasterLaunch) -> None:
        sent = codec.encode_launches([item], []).SerializeToString()
        [item], _, _ = codec.decode_launches(codec.encode_launches([item], []).FromString(sent))
        preset, address = self.settings.scheduler, master_address(item.attempt_id)
        core = ApplicationMaster(
            item.attempt_id,
            replace(
                MasterSettings(), planner=preset.planner, planner_options=preset.planner_options
            ),
            asker(preset.asker, preset.asker_options),
            np.random.default_rng([self.settings.seed, 3, item.attempt_id]),
        )
        self.containers[address] = (item.container_id, node)
        self.shells[MASTER].add(address, core)
        self.shells[MASTER].post(address, Started())

    def ended(self, master: Address, outcome: Outcome) -> None:
        container, node = self.containers.pop(master)
        ends = codec.encode_ends([codec.MasterEnded(container, outcome, int(outcome), "")])
        [end] = codec.decode_ends(type(ends).FromString(ends.SerializeToString()))
        event = ProcessEnded(end.container_id, end.outcome, end.exit_code)
        self.shells[NODE].post(node, event)

    def kill(self, container: ContainerId) -> None:
        for master, (held, _) in list(self.containers.items()):
            if held == container:
                self.shells[MASTER].remove(master)
                self.ended(master, Outcome.KILLED)

    def note(self, fact: Fact, now: float) -> None:
        self.facts.append((now, fact))
        if isinstance(fact, AppChanged) and fact.state in ENDED:
            self.left -= 1
            if not self.left:
                for shell in self.shells.values():
                    shell.end()

    async def run(self) -> None:
        self.start()
        await asyncio.gather(*(shell.run() for shell in self.shells.values()))


class _Side(Outside):
    """What the cores of one shell order; the world is the other shells."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self._source: Address = ""

    def send(self, sends: Sequence[tuple[Address, Any]]) -> None:
        for to, message in sends:
            self._cluster.carry(sender_of(to, message), to, message)

    def launch(self, core: Address, item: TaskLaunch | MasterLaunch) -> None:
        assert isinstance(item, MasterLaunch)
        self._cluster.launch(core, item)

    def kill(self, core: Address, container: ContainerId) -> None:
        self._cluster.kill(container)

    def plan(self, core: Address, order: MakePlan) -> None:
        self._cluster.shells[MASTER].post(core, replace(make_plan(order), planning_time_s=0.0))

    def note(self, core: Address, fact: Fact | RunFact, now: float) -> None:
        for one in facts_of(fact):
            self._cluster.note(one, now)

    def stopped(self, core: Address, reason: str) -> None:
        if core in self._cluster.containers:
            self._cluster.ended(core, Outcome.SUCCEEDED)


def sender_of(to: Address, message: Any) -> Address:
    """Who sent it: streams know it, and so does the message itself."""
    if to == MANAGER:
        node = getattr(message, "node_id", None)
        return node_address(node) if node is not None else master_address(message.attempt_id)
    if to.startswith(NODE):
        attempt = getattr(message, "attempt_id", None)
        return MANAGER if attempt is None else master_address(attempt)
    node = getattr(message, "node_id", None)
    return MANAGER if node is None else node_address(node)


LiveRun = Callable[[ClusterSpec, Sequence[Job], SimSettings], list[tuple[float, Fact]]]


@pytest.fixture
def live_run() -> LiveRun:
    """Run what a simulation runs behind live shells, to the end of the last job; the facts."""

    def run(
        cluster: ClusterSpec, jobs: Sequence[Job], settings: SimSettings
    ) -> list[tuple[float, Fact]]:
        loop = SteppedLoop()
        try:
            live = LiveCluster(cluster, jobs, settings, loop)
            loop.run_until_complete(asyncio.wait_for(live.run(), UNTIL_S))
        finally:
            loop.close()
        return live.facts

    return run
