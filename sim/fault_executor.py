"""What can be done to a simulated cluster: the orders of a script of faults, carried out."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from sim.chaos import REPEAT, Chaos
from sim.engine import Actor, Effects, Engine
from sim.faults import FaultKind, Faults
from sim.hostile import Change, hostile
from sim.network import Network
from sim.process_faults import Pauses, die_amid, die_without_room, set_clock
from sim.settings import SimSettings
from weft.model.cluster import NodeSpec
from weft.model.ids import ContainerId, NodeId
from weft.model.queues import QueueSpec
from weft.protocol.effects import ClientRequested, NodeExamined, NodeSlowed, TimerFired
from weft.protocol.messages import MANAGER, Address, Outcome, node_address
from weft.protocol.requests import DecommissionNode, RecommissionNode, Refused, SetQueues

Order = DecommissionNode | RecommissionNode | SetQueues
# An operator's requests carry this token.
OPERATOR = "operator"
# An order that is refused is given again after so long.
REPEAT_S = 5.0
# A process that died amid its effects is back after so long, if not later.
BACK_S = 0.3
# Only the last messages may arrive once more.
REPLAYABLE_MESSAGES_MAX = 2000


class Breakable(Protocol):
    """What a script of faults needs of a simulated cluster."""

    engine: Engine
    network: Network
    settings: SimSettings
    actors: dict[Address, Actor]

    @property
    def epoch(self) -> int:
        """Number of times that the Resource Manager started before it did last."""
        ...

    def listen(self, tap: Callable[[Address, object], None]) -> None:
        """Call `tap` with every message."""

    def start_manager(self) -> None:
        """Start the Resource Manager from what it persisted, unless it runs."""

    def stop_manager(self) -> None:
        """End its process."""

    def start_node(self, spec: NodeSpec) -> None:
        """Start a node manager."""

    def crash_node(self, node: NodeId) -> None:
        """End a node with all that runs there."""

    def end_master(self, container: ContainerId, outcome: Outcome) -> None:
        """End a master's process."""

    def masters_of(self, number: int) -> list[tuple[ContainerId, Actor]]:
        """Return the masters of a job of the workload that run."""
        ...

    def actors_on(self, node: NodeId) -> list[Actor]:
        """Return what runs on a node: its manager, and masters."""
        ...

    def spec_of(self, node: NodeId) -> NodeSpec:
        """Return how a node is described."""
        ...

    def leaves(self, node: NodeId) -> bool:
        """Return whether the manager has a node leave, or gone."""
        ...

    def has_queues(self, queues: QueueSpec) -> bool:
        """Return whether these are the manager's queues."""
        ...


class _Later:
    """Calls what was put off."""

    def __init__(self) -> None:
        self.calls: dict[int, Callable[[], None]] = {}

    def handle(self, event: TimerFired, now: float) -> Effects:
        """Run the call that a timer's key is the number of; there are no other events."""
        self.calls.pop(event.key)()  # type: ignore[call-overload]
        return []


class FaultExecutor:
    """The hand of chaos on one simulation."""

    def __init__(self, simulation: Breakable, faults: Faults) -> None:
        self._simulation = simulation
        self._engine = simulation.engine
        self.faults = faults
        self.actor = Actor("chaos", Chaos(self))
        self._later = _Later()
        self._clerk = Actor("later", self._later)
        self._pauses = Pauses(self._engine)
        # By how much clocks are ahead; "" stands for the manager's.
        self._ahead_s: dict[NodeId, float] = {}
        self._full_until_s = -1.0
        self._disk_fails = any(f.kind is FaultKind.DISK_FULL for f in faults.script)
        listens = {FaultKind.REPLAY, FaultKind.HOSTILE}
        listening = any(f.kind in listens for f in faults.script)
        self._sent: deque[tuple[Address, object]] = deque(maxlen=REPLAYABLE_MESSAGES_MAX)
        if listening:
            simulation.listen(lambda to, message: self._sent.append((to, message)))
        self._operator_orders: deque[Order] = deque()
        # The operator was told that these nodes are out of service.
        self.out_of_service: set[NodeId] = set()
        self._calls = 0

    def dress(self, actor: Actor, host: NodeId) -> None:
        """Prepare a process that starts: it has its host's clock, and the manager its disk."""
        if not host and self._disk_fails:
            die_without_room(actor, self._is_full, self._disk_was_full)
        ahead_s = self._ahead_s.get(host, 0.0)
        if ahead_s:
            set_clock(actor, ahead_s)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Make a call after some time."""
        self._calls += 1
        self._later.calls[self._calls] = call
        self._engine.set_timer(self._clerk, self._calls, delay_s)

    # -- processes that die ------------------------------------------------------------------------

    def crash_node(self, node: NodeId, effect: int = -1) -> None:
        """Crash a node with all that runs there, at once or amid its next effects."""
        actor = self._simulation.actors.get(node_address(node))
        if actor is None:
            return
        if effect < 0:
            self._simulation.crash_node(node)
            return

        def crash() -> None:
            self._simulation.crash_node(node)
            self.later(BACK_S, lambda: self.back(node))

        die_amid(actor, effect, crash)

    def back(self, node: NodeId) -> None:
        """Start a crashed node again, unless it is up."""
        if node_address(node) not in self._simulation.actors:
            self._simulation.start_node(self._simulation.spec_of(node))

    def lose_master(self, number: int, effect: int = -1) -> None:
        """Kill the master of a job, at once or amid its next effects."""
        simulation = self._simulation
        for container, actor in simulation.masters_of(number):
            if effect < 0:
                simulation.end_master(container, Outcome.FAILED)
            else:
                die_amid(actor, effect, partial(simulation.end_master, container, Outcome.FAILED))

    def stop_manager(self, effect: int = -1) -> None:
        """Kill the Resource Manager's process, at once or amid its next effects."""
        actor = self._simulation.actors.get(MANAGER)
        if effect < 0 or actor is None:
            self._simulation.stop_manager()
            return

        def stop() -> None:
            self._simulation.stop_manager()
            self.later(BACK_S, self.start_manager)

        die_amid(actor, effect, stop)

    def start_manager(self) -> None:
        """Start the Resource Manager again from what it persisted."""
        self._simulation.start_manager()

    def fill_disk(self, for_s: float) -> None:
        """Let the manager write nothing for so long."""
        self._full_until_s = max(self._full_until_s, self._engine.now + for_s)

    def _is_full(self) -> bool:
        return self._engine.now < self._full_until_s

    def _disk_was_full(self) -> None:
        self._simulation.stop_manager()
        self.later(BACK_S + max(0.0, self._full_until_s - self._engine.now), self.start_manager)

    # -- processes that stand still, clocks --------------------------------------------------------

    def pause(self, nodes: Iterable[NodeId]) -> None:
        """Pause nodes and the masters there; the manager where none is named."""
        for actor in self._on(nodes):
            self._pauses.pause(actor)

    def resume(self, nodes: Iterable[NodeId]) -> None:
        """Resume nodes and the masters there; the manager where none is named."""
        for actor in self._on(nodes):
            self._pauses.resume(actor)

    @property
    def waited(self) -> Mapping[NodeId, float]:
        """Time when the newest report of a node came to a manager that stood still, s."""
        return self._pauses.waited

    @property
    def stands_still(self) -> bool:
        """Whether the manager does."""
        manager = self._simulation.actors.get(MANAGER)
        return manager is not None and self._pauses.stands(manager)

    def _on(self, nodes: Iterable[NodeId]) -> list[Actor]:
        chosen = list(nodes)
        if not chosen:
            manager = self._simulation.actors.get(MANAGER)
            return [] if manager is None else [manager]
        return [actor for node in chosen for actor in self._simulation.actors_on(node)]

    def set_clock(self, nodes: Iterable[NodeId], step_s: float) -> None:
        """Set another clock for processes of nodes (none: the manager) that start later."""
        for host in list(nodes) or [""]:
            self._ahead_s[host] = step_s

    def slow(self, node: NodeId, speed: float) -> None:
        """Make a node a straggler."""
        actor = self._simulation.actors.get(node_address(node))
        if actor is not None:
            self._engine.soon(actor, NodeSlowed(speed))

    def examine(self, nodes: Iterable[NodeId], report: str) -> None:
        """Report by a health script what is wrong with nodes, or that nothing is."""
        for node in nodes:
            actor = self._simulation.actors.get(node_address(node))
            if actor is not None:
                self._engine.soon(actor, NodeExamined(report))

    # -- links -------------------------------------------------------------------------------------

    def cut(self, nodes: Iterable[NodeId], *, inwards: bool, outwards: bool) -> None:
        """Begin a partition, one way or both."""
        self._simulation.network.cut(nodes, inwards=inwards, outwards=outwards)

    def heal(self, nodes: Iterable[NodeId], *, inwards: bool, outwards: bool) -> None:
        """End a partition, one way or both."""
        self._simulation.network.heal(nodes, inwards=inwards, outwards=outwards)

    def replay(self, number: int, count: int) -> None:
        """Deliver messages of before once more."""
        self._arrive(number, count, lambda rng, to, message: [(to, message)])

    def attack(self, number: int, nodes: Iterable[NodeId], count: int) -> None:
        """Deliver messages that no honest process sends."""
        self._arrive(number, count, partial(hostile, epoch=self._simulation.epoch))

    def _arrive(self, number: int, count: int, change: Change) -> None:
        rng = np.random.default_rng([self._simulation.settings.seed, 24, number])
        sent = list(self._sent)
        for _ in range(count if sent else 0):
            to, message = sent[int(rng.integers(len(sent)))]
            for address, changed in change(rng, to, message):
                target = self._simulation.actors.get(address)
                if target is not None:
                    self._engine.soon(target, changed)

    # -- an operator -------------------------------------------------------------------------------

    def decommission(self, nodes: Iterable[NodeId], timeout_s: float) -> None:
        """Take nodes out of service, as an operator does."""
        self._order([DecommissionNode(node, timeout_s) for node in nodes])

    def recommission(self, nodes: Iterable[NodeId]) -> None:
        """Put nodes back into service, as an operator does."""
        self._order([RecommissionNode(node) for node in nodes])

    def set_queues(self, queues: QueueSpec) -> None:
        """Set other queues, as an operator does."""
        self._order([SetQueues(queues)])

    def _order(self, requests: Sequence[Order]) -> None:
        self._operator_orders.extend(requests)
        if len(self._operator_orders) == len(requests):
            self.give_order()

    def give_order(self) -> None:
        """Give the operator's orders one after the other, each until it is answered."""
        manager = self._simulation.actors.get(MANAGER)
        if not self._operator_orders:
            return
        self._engine.set_timer(self.actor, REPEAT, REPEAT_S)
        if isinstance(self._operator_orders[0], RecommissionNode):
            self.out_of_service.discard(self._operator_orders[0].node_id)
        if manager is not None:
            self._engine.soon(manager, ClientRequested(OPERATOR, self._operator_orders[0]))

    def operator_answered(self, answer: object) -> None:
        """Take the manager's answer to an order; one that names an unknown node is given again."""
        if isinstance(answer, Refused) or not self._operator_orders:
            return
        order = self._operator_orders[0]
        if isinstance(order, SetQueues) and not self._simulation.has_queues(order.queues):
            # The answer is to an order that was said again to a manager that stood still.
            return
        self._operator_orders.popleft()
        # said again to a manager that stood still, one order is answered for another
        if isinstance(order, DecommissionNode) and self._simulation.leaves(order.node_id):
            self.out_of_service.add(order.node_id)
        self._engine.set_timer(self.actor, REPEAT, None)
        self.give_order()
