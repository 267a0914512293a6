"""Failed tasks: when a job gives up, and which nodes it avoids."""

from collections.abc import Callable, Set

from weft.model.ids import NodeId
from weft.protocol.messages import Outcome

# Where few nodes fail a task again and again, so many times the limit is the task's own fault.
NODE_FAULTS_FACTOR = 5
# Fewer refused starts in a row say nothing, however long they take.
REFUSED_MIN = 10
# A job of which nodes start nothing for so long, for want of tokens, has failed, s.
REFUSED_WAIT_S = 600.0
# More of the nodes are never avoided (YARN's ignore-threshold-node-percent).
AVOIDED_SHARE_MAX = 0.33


class NodeFailures:
    """Counts failed tasks by node; a node with too many is avoided from then on.

    While more than `share_max` of the nodes that a label opens would be avoided, none of them is:
    the job is at fault rather than the nodes (YARN's ignore-threshold-node-percent, which knows no
    labels). `open_to` says how many nodes a label opens now ("": those without one).
    """

    __slots__ = ("_bad", "_counts", "_failures_max", "_open_to", "_share_max")

    def __init__(
        self,
        open_to: Callable[[str], int],
        failures_max: int,
        share_max: float = AVOIDED_SHARE_MAX,
    ) -> None:
        self._open_to = open_to
        self._failures_max = failures_max
        self._share_max = share_max
        self._counts: dict[NodeId, int] = {}
        self._bad: dict[str, set[NodeId]] = {}

    @property
    def avoided(self) -> Set[NodeId]:
        """The nodes not to use now."""
        found = (bad for label, bad in self._bad.items() if not self.ignored(label))
        return frozenset().union(*found)

    def ignored(self, label: str) -> bool:
        """Return whether so many nodes that a label opens are bad that it is not their fault."""
        return len(self._bad.get(label, ())) > self._share_max * self._open_to(label)

    def count(self, node: NodeId, label: str) -> bool:
        """Count a failed task with a label on a node; return True when this changes `avoided`."""
        failures = self._counts[node] = self._counts.get(node, 0) + 1
        bad = self._bad.setdefault(label, set())
        if failures < self._failures_max or node in bad:
            return False
        before = self.avoided
        bad.add(node)
        return self.avoided != before

    def failures_on(self, node: NodeId) -> int:
        """Return how many tasks failed on a node so far."""
        return self._counts.get(node, 0)


class Refusals:
    """Starts refused for want of a token, in a row: nothing that was started lies between."""

    __slots__ = ("_patience_s", "_since_s", "count")

    def __init__(self, patience_s: float) -> None:
        self.count = 0
        self._patience_s = patience_s
        self._since_s = 0.0

    def one_more(self, now: float) -> bool:
        """Count one; True when they are too many, for too long."""
        if not self.count:
            self._since_s = now
        self.count += 1
        return self.count >= REFUSED_MIN and now - self._since_s >= self._patience_s

    def why(self, node: NodeId, error: str, now: float) -> str:
        """Return why a job failed that could start nothing, in one line."""
        return (
            f"nothing could be started for {now - self._since_s:.0f} s: {self.count} starts in a "
            f"row were refused, the last by {node} ({error})"
        )


class NodeEnds:
    """Counts how often the node that ran a task ended under it: a task may be what ends them."""

    __slots__ = ("_ends", "_ends_max", "_faults")

    def __init__(self, most: int) -> None:
        self._ends_max = most
        self._ends: dict[tuple[int, int], list[NodeId]] = {}
        self._faults: dict[tuple[int, int], list[NodeId]] = {}

    def count(self, stage: int, task: int, node: NodeId) -> tuple[NodeId, ...]:
        """Count one more node that ended under a task; return the nodes when they are too many."""
        nodes = self._ends.setdefault((stage, task), [])
        nodes.append(node)
        return tuple(nodes) if 0 < self._ends_max <= len(nodes) else ()

    def fault(self, stage: int, task: int, node: NodeId) -> tuple[NodeId, ...]:
        """Count one more node that failed a task for reasons of its own; return them when too many.

        The same node counts once: it is not fit for work soon. Where tries go on all the same, they
        are limited, too.
        """
        nodes = self._faults.setdefault((stage, task), [])
        nodes.append(node)
        most = self._ends_max
        found = tuple(dict.fromkeys(nodes))
        return (
            found if 0 < most <= len(found) or 0 < NODE_FAULTS_FACTOR * most <= len(nodes) else ()
        )


def blame(
    stage: str, task: int, nodes: tuple[NodeId, ...], text: str, how: str = "ended with"
) -> str:
    """Return why a job failed whose task took its nodes along, in one line."""
    return (
        f"stage {stage!r} task {task} {how} its node {len(nodes)} times "
        f"({', '.join(nodes)}), which it may have caused; the last: {text}"
    )


def diagnose(
    stage: str, task: int, attempts: int, node: NodeId, outcome: Outcome, exit_code: int, text: str
) -> str:
    """Return why a job failed, in one line: stage, task, attempts, last exit code and message."""
    how = "out of memory, " if outcome is Outcome.OUT_OF_MEMORY else ""
    code = f"exit code {exit_code}"
    # A node's own words may begin with it.
    told = text if text.startswith(code) else f"{code}: {text}" if text else code
    return f"stage {stage!r} task {task} failed {attempts} times, last on {node} with {how}{told}"
