"""Application Masters on the wire: any number of them share one process and its connections."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from am.ask.registry import Asker, HoldAsker, asker
from am.core import ApplicationMaster
from am.making import MasterParts
from am.plan.reuse import PlanShelf
from am.process.history import HistoryFile, TapedHistory
from am.process.metrics import MasterMetrics
from am.process.planning import Planning
from am.process.shelf import DiskShelf
from am.process.warm import order_of, warm
from am.settings import MasterSettings
from weft.model.errors import InputError, WeftError
from weft.model.ids import AttemptId, ContainerId
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.policies.presets import Preset, choose, with_options
from weft.protocol.effects import MakePlan, Started
from weft.protocol.facts import Fact, RunFact
from weft.protocol.messages import (
    MANAGER,
    Address,
    AttemptAccepted,
    ContainersGranted,
    MasterLaunch,
    Outcome,
    StartContainers,
    TasksEnded,
    master_address,
)
from weft.runtime.interfaces import Outside
from weft.runtime.process import Process
from weft.runtime.role_settings import AmSettings
from weft.runtime.settings import pairs
from weft.runtime.shell import Shell
from weft.wire.codec import MasterEnded
from weft.wire.connections import NodeLink, master_stream
from weft.wire.outbound_queues import Lane
from weft.wire.server import Server
from weft.wire.services import add_host_service
from weft.wire.token_store import Wallet
from weft.wire.tokens import Shown, numbered
from weft.wire.validator import Gate

# A shell shows SIGKILL as exit code 137; 70 is EX_SOFTWARE.
KILLED, BUG = 137, 70
# Wall clock: a link to a node manager that is gone for so long is closed.
LINK_DOWN_S = 60.0
# Wall clock: how often to look whether a kept plan may be improved.
IDLE_S = 1.0
# Expensive plans are built by so many processes.
PLAN_WORKERS = 1
OnEnd = Callable[[AttemptId, Outcome, int, str], None]


class MasterService(Outside):
    """Drives masters and connects them. `on_end` is notified how each of them ended."""

    def __init__(self, process: Process, settings: AmSettings, on_end: OnEnd) -> None:
        self._process = process
        self._on_end = on_end
        self._seed = settings.seed
        self.chosen = _chosen(settings)
        self._core_settings = MasterSettings(
            planner=self.chosen.planner,
            planner_options=self.chosen.planner_options,
            plan_wait_s=settings.plan_wait_s,
            resend_s=settings.resend_s,
            speculate=settings.speculate,
            node_ends_max=settings.node_ends_max,
        )
        self.metrics = MasterMetrics(process.exposition)
        self.shell = Shell(
            process.clock,
            self,
            meter=process.exposition.meter,
            checked=settings.check,
            tape=process.record(f"am-{settings.attempt}" if settings.attempt else "am"),
        )
        shelf = PlanShelf() if settings.plans is None else DiskShelf(settings.plans)
        self._planning = Planning(PLAN_WORKERS, settings.plan_limit_s, shelf)
        self._history = HistoryFile(settings.history)
        self._cores: dict[Address, ApplicationMaster] = {}
        self._plans: dict[Address, asyncio.Task[None]] = {}
        self._links: dict[str, NodeLink] = {}
        # Maps a node's address to its host:port.
        self._nodes: dict[Address, str] = {}
        self._follower = uuid.uuid4().hex
        self.gate = Gate(process.tell_refused, process.count_refused)
        self._stream_to = settings.manager
        self.wallet = Wallet()
        self._stream = master_stream(
            settings.manager,
            self._from_manager,
            process.link_log("Resource Manager", settings.manager),
            self._dropped,
            self.wallet.greeting,
        )

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and drive what is added."""
        self._process.spawn(self._stream.run())
        self._process.spawn(self.shell.run())
        self._process.spawn(self._prune())
        self._process.spawn(self._improve_plans())

    def warm(self) -> None:
        """Load what masters need, before the first comes; what other processes do is begun."""
        planner = self.chosen.planner
        elsewhere = bool(planner) and self._planning.elsewhere(planner)
        try:
            warm(self.chosen, DEFAULT_RESOURCE_TYPES, plan=bool(planner) and not elsewhere)
        except Exception as error:
            # Another package's policy may fail; its jobs will report it as well.
            self._process.log.warning("no warm start", error=f"{type(error).__name__}: {error}")
        if elsewhere:
            self._planning.begin(order_of(self.chosen, DEFAULT_RESOURCE_TYPES))

    async def _prune(self) -> None:
        """Forget node managers that are gone, now and then."""
        while True:
            await asyncio.sleep(LINK_DOWN_S)
            for place, link in list(self._links.items()):
                if link.down_s > LINK_DOWN_S:
                    del self._links[place]
                    await link.close()

    async def _improve_plans(self) -> None:
        """Make kept plans better while no master waits for one."""
        while True:
            await asyncio.sleep(IDLE_S)
            while not self._plans and await self._planning.improve():
                await asyncio.sleep(0)

    def add(self, attempt: AttemptId) -> None:
        """Start one master."""
        address = master_address(attempt)
        if address in self.shell:
            return
        parts = MasterParts(
            attempt,
            self.chosen.asker,
            self.chosen.asker_options,
            self._core_settings,
            (self._seed, attempt),
        )
        history = self._history.read()
        if self._process.tape is not None:
            history = TapedHistory(history, self._process.tape, address)
        core = self._cores[address] = parts.make(history, self._dress)
        if self._stream.up:
            self._stream.send(self.wallet.attempt(attempt))
        self.shell.add(address, core, parts)
        self.shell.post(address, Started())
        self.metrics.hosted(len(self.shell.addresses))

    def _dress(self, decider: Asker | HoldAsker) -> Asker | HoldAsker:
        return self.metrics.timed(decider) if isinstance(decider, HoldAsker) else decider

    def end_now(self, attempt: AttemptId, message: str) -> None:
        """End one master at once, as SIGKILL would end its process."""
        address = master_address(attempt)
        if address in self.shell:
            self.shell.remove(address)
            self._gone(address, Outcome.KILLED, KILLED, message)

    async def close(self) -> None:
        """Let last words leave, then close the connections."""
        await self._stream.drain(1.0)
        for _ in range(100):
            if all(link.idle for link in self._links.values()):
                break
            await asyncio.sleep(0.01)
        self._planning.close()
        for link in self._links.values():
            await link.close()

    def _gone(self, address: Address, outcome: Outcome, exit_code: int, message: str) -> None:
        attempt = int(address.partition(":")[2])
        self.wallet.gone(attempt)
        del self._cores[address]
        plan = self._plans.pop(address, None)
        if plan is not None:
            plan.cancel()
        self.metrics.gone(attempt)
        self.metrics.hosted(len(self.shell.addresses))
        self._on_end(attempt, outcome, exit_code, message)

    # -- in ----------------------------------------------------------------------------------------

    def _from_manager(self, batch: list[Any]) -> None:
        for shown in batch:
            if isinstance(shown, Shown):
                self.wallet.take(shown)
        told = [message for message in batch if not isinstance(message, Shown)]
        for message in self.gate.sift(told, 0, self._stream_to):
            if isinstance(message, ContainersGranted):
                for end in message.ended:
                    self.wallet.ended(end.container_id, len(end.tasks) or 1)
            elif isinstance(message, AttemptAccepted):
                # Some may be reusable, and only their nodes know which.
                for held in message.held:
                    self.wallet.lasts(held.container_id)
            if isinstance(message, ContainersGranted | AttemptAccepted):
                for node, address in message.addresses:
                    self._nodes[f"node:{node}"] = address
            self.shell.post(master_address(message.attempt_id), message)

    def _from_nodes(self, batch: list[Any]) -> None:
        clock = self._process.clock
        for message in self.gate.sift(batch, 0, "a node manager"):
            if isinstance(message, TasksEnded) and message.container_use:
                self.metrics.reported(clock.wall_s(clock.now() - message.sent_s))
            self.shell.post(master_address(message.attempt_id), message)

    def _dropped(self, lost: int) -> None:
        text = "Messages to peers that are not connected"
        self._process.exposition.count("weft_messages_undeliverable", text, lost)

    # -- out ---------------------------------------------------------------------------------------

    def send(self, sends: Sequence[tuple[Address, Any]]) -> None:
        """Send to the manager in one batch, to nodes by the process that runs them."""
        self._process.flush()
        to_manager: list[Any] = []
        to_nodes: dict[str, list[Any]] = {}
        for to, message in sends:
            if to == MANAGER:
                to_manager.append(message)
            elif (place := self._nodes.get(to)) is not None:
                if isinstance(message, StartContainers):
                    for item in message.items:
                        if item.reusable:
                            self.wallet.lasts(item.container_id)
                to_nodes.setdefault(place, []).append(message)
            else:
                self._dropped(1)
        if to_manager:
            self._stream.send(to_manager)
        for place, messages in to_nodes.items():
            link = self._links.get(place)
            if link is None:
                link = NodeLink(
                    place, self._follower, self._from_nodes, self._dropped, self.wallet.of
                )
                self._links[place] = link
            link.send(messages)

    def plan(self, core: Address, order: MakePlan) -> None:
        """Build a plan elsewhere."""
        self._plans[core] = self._process.spawn(self._plan(core, order))

    async def _plan(self, core: Address, order: MakePlan) -> None:
        ready = await self._planning.make(order)
        if self._plans.get(core) is asyncio.current_task():
            del self._plans[core]
        self.shell.post(core, ready)

    def note(self, core: Address, fact: Fact | RunFact, now: float) -> None:
        """Log and count."""
        self._process.note(fact, now)
        self.metrics.note(fact)

    def stopped(self, core: Address, reason: str) -> None:
        """Drop a master that finished or was asked to stop."""
        done = reason == "finished"
        master = self._cores[core]
        if done and master.job is not None:
            try:
                self._history.add(master.job.history_key, master.history_record())
            except WeftError as error:
                self._process.log.warning("the history is not kept", reason=str(error))
        self._gone(core, Outcome.SUCCEEDED if done else Outcome.KILLED, 0 if done else 1, reason)

    def failed(self, core: Address, error: Exception) -> None:
        """Drop a master that failed: its bug is its own end, the next attempt may do better."""
        self._process.log.error("a master failed", master=core, exc_info=error)
        self._gone(core, Outcome.FAILED, BUG, f"{type(error).__name__}: {error}")


def _chosen(settings: AmSettings) -> Preset:
    """Return the policies by name; raises InputError for an unknown name or option."""
    from am.plan.registry import planner_parameters

    chosen = choose(settings.scheduler, planner=settings.planner, asker=settings.asker)
    chosen = with_options(chosen, pairs(settings.set), ("planner", "asker"))
    planner_parameters(chosen.planner, chosen.planner_options)
    asker(chosen.asker, chosen.asker_options)
    return chosen


class HostService:
    """The AM host: masters of any number of node manager processes, a stream from each."""

    def __init__(self, process: Process, settings: AmSettings, server: Server) -> None:
        self.masters = MasterService(process, settings, self._ended)
        self._containers: dict[AttemptId, tuple[ContainerId, Lane]] = {}
        add_host_service(server, self._orders, self._closed)

    def _orders(
        self, lane: Lane, batch: tuple[list[MasterLaunch], list[ContainerId], list[bytes]]
    ) -> None:
        launch, kill, tokens = batch
        gate = self.masters.gate
        given = {numbered(token)[1]: token for token in tokens}
        for item in gate.sift(launch, 0, lane.peer):
            _, holder = self._containers.get(item.attempt_id, (0, lane))
            if holder is not lane and not holder.closed:
                problem = f"the master of attempt {item.attempt_id} runs for another node manager"
                gate.refuse("MasterLaunch", lane.peer, InputError("attempt_id", problem))
                continue
            if item.attempt_id in given:
                self.masters.wallet.take(Shown((given[item.attempt_id],)))
            self._containers[item.attempt_id] = (item.container_id, lane)
            self.masters.add(item.attempt_id)
        for container in kill:
            found = [(a, of) for a, (c, of) in self._containers.items() if c == container]
            for attempt, holder in found:
                if holder is lane:
                    self.masters.end_now(attempt, "killed by its node")
                else:
                    problem = f"container {container} is another node manager's"
                    gate.refuse("KillMaster", lane.peer, InputError("container_id", problem))

    def _closed(self, lane: Lane) -> None:
        """End the masters whose nodes are gone with a stream."""
        for attempt in [a for a, (_, found) in self._containers.items() if found is lane]:
            self.masters.end_now(attempt, "its node manager is gone")

    def _ended(self, attempt: AttemptId, outcome: Outcome, exit_code: int, message: str) -> None:
        container, lane = self._containers.pop(attempt)
        lane.send((MasterEnded(container, outcome, exit_code, message),))
