"""Who breaks a simulated cluster on time, after a script of faults."""

from collections.abc import Iterable
from typing import Protocol, cast

from sim.engine import Effects
from sim.faults import OF_ROUTER, Fault, FaultKind, Faults
from weft.model.ids import NodeId
from weft.model.queues import QueueSpec
from weft.protocol.effects import SetTimer, Started, TimerFired

# The key of the timer after which an operator's order is given again.
REPEAT = "repeat"
_ORDERS = (FaultKind.DECOMMISSION, FaultKind.RECOMMISSION, FaultKind.QUEUES)
_WAYS = {
    FaultKind.PARTITION: {"inwards": True, "outwards": True},
    FaultKind.DEAF: {"inwards": True, "outwards": False},
    FaultKind.MUTE: {"inwards": False, "outwards": True},
}


class Breakable(Protocol):
    """What can be done to a simulated cluster."""

    @property
    def faults(self) -> Faults:
        """The script."""

    def crash_node(self, node: NodeId, effect: int = -1) -> None:
        """Crash a node with all that runs there, at once or amid its next effects."""

    def back(self, node: NodeId) -> None:
        """Start a crashed node again, empty."""

    def slow(self, node: NodeId, speed: float) -> None:
        """Make a node a straggler."""

    def cut(self, nodes: Iterable[NodeId], *, inwards: bool, outwards: bool) -> None:
        """Begin a partition, one way or both."""

    def heal(self, nodes: Iterable[NodeId], *, inwards: bool, outwards: bool) -> None:
        """End a partition, one way or both."""

    def pause(self, nodes: Iterable[NodeId]) -> None:
        """Pause nodes and the masters there; the manager where none is named."""

    def resume(self, nodes: Iterable[NodeId]) -> None:
        """Resume nodes and the masters there; the manager where none is named."""

    def examine(self, nodes: Iterable[NodeId], report: str) -> None:
        """Report by a health script what is wrong with nodes, or that nothing is."""

    def set_clock(self, nodes: Iterable[NodeId], step_s: float) -> None:
        """Set another clock for processes of nodes (none: the manager) that start later."""

    def fill_disk(self, for_s: float) -> None:
        """Let the manager write nothing for so long."""

    def replay(self, number: int, count: int) -> None:
        """Deliver messages of before once more; `number` of the fault chooses which."""

    def attack(self, number: int, nodes: Iterable[NodeId], count: int) -> None:
        """Deliver messages that no honest process sends."""

    def lose_master(self, number: int, effect: int = -1) -> None:
        """Kill the master of a job, at once or amid its next effects."""

    def decommission(self, nodes: Iterable[NodeId], timeout_s: float) -> None:
        """Take nodes out of service, as an operator does."""

    def recommission(self, nodes: Iterable[NodeId]) -> None:
        """Put nodes back into service, as an operator does."""

    def set_queues(self, queues: QueueSpec) -> None:
        """Set other queues, as an operator does."""

    def give_order(self) -> None:
        """Give the operator's order again that was refused."""

    def stop_manager(self, effect: int = -1) -> None:
        """Kill the Resource Manager's process, at once or amid its next effects."""

    def start_manager(self) -> None:
        """Start the Resource Manager again from what it persisted."""


class Chaos:
    """The actor that breaks things on time; each fault has a timer for its start and its end."""

    def __init__(self, cluster: Breakable) -> None:
        self._cluster = cluster

    def handle(self, event: Started | TimerFired, now: float) -> Effects:
        """Set timers on `Started`; a timer's key is (number of the fault, whether it ends)."""
        script = self._cluster.faults.script
        if isinstance(event, Started):
            return [
                SetTimer(fault.at_s, (n, False))
                for n, fault in enumerate(script)
                if fault.kind not in OF_ROUTER
            ]
        if event.key == REPEAT:
            self._cluster.give_order()
            return []
        number, over = cast(tuple[int, bool], event.key)
        fault = script[number]
        if over:
            self._end(fault)
        else:
            self._begin(fault, number)
            if fault.for_s or fault.kind is FaultKind.RESTART_MANAGER:
                return [SetTimer(fault.for_s, (number, True))]
        return []

    def _begin(self, fault: Fault, number: int) -> None:
        cluster = self._cluster
        if fault.kind is FaultKind.CRASH:
            for node in fault.nodes:
                cluster.crash_node(node, fault.effect)
        elif fault.kind is FaultKind.SLOW:
            for node in fault.nodes:
                cluster.slow(node, fault.speed)
        elif fault.kind in _WAYS:
            cluster.cut(fault.nodes, **_WAYS[fault.kind])
        elif fault.kind is FaultKind.LOSE_MASTER:
            cluster.lose_master(fault.job, fault.effect)
        elif fault.kind in _ORDERS:
            self._order(fault)
        elif fault.kind in (FaultKind.PAUSE, FaultKind.PAUSE_MANAGER):
            cluster.pause(fault.nodes)
        elif fault.kind is FaultKind.UNHEALTHY:
            cluster.examine(fault.nodes, "ERROR: as the script of faults says")
        elif fault.kind is FaultKind.CLOCK:
            cluster.set_clock(fault.nodes, fault.step_s)
        elif fault.kind is FaultKind.DISK_FULL:
            cluster.fill_disk(fault.for_s)
        elif fault.kind is FaultKind.REPLAY:
            cluster.replay(number, fault.count)
        elif fault.kind is FaultKind.HOSTILE:
            cluster.attack(number, fault.nodes, fault.count)
        else:
            cluster.stop_manager(fault.effect)

    def _order(self, fault: Fault) -> None:
        """Give an operator's order."""
        if fault.kind is FaultKind.DECOMMISSION:
            self._cluster.decommission(fault.nodes, fault.timeout_s)
        elif fault.kind is FaultKind.RECOMMISSION:
            self._cluster.recommission(fault.nodes)
        else:
            self._cluster.set_queues(fault.queues)

    def _end(self, fault: Fault) -> None:
        cluster = self._cluster
        if fault.kind is FaultKind.CRASH:
            for node in fault.nodes:
                cluster.back(node)
        elif fault.kind is FaultKind.SLOW:
            for node in fault.nodes:
                cluster.slow(node, 1.0)
        elif fault.kind in _WAYS:
            cluster.heal(fault.nodes, **_WAYS[fault.kind])
        elif fault.kind is FaultKind.DECOMMISSION:
            cluster.recommission(fault.nodes)
        elif fault.kind in (FaultKind.PAUSE, FaultKind.PAUSE_MANAGER):
            cluster.resume(fault.nodes)
        elif fault.kind is FaultKind.UNHEALTHY:
            cluster.examine(fault.nodes, "")
        elif fault.kind in (FaultKind.RESTART_MANAGER, FaultKind.DISK_FULL):
            cluster.start_manager()
