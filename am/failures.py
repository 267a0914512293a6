"""Failed tasks: when a job gives up, and which nodes it avoids."""

from weft.ids import NodeId
from weft.messages import Outcome


class NodeFailures:
    """Counts failed tasks by node; a node with too many is avoided from then on.

    When more than `share_max` of the cluster's `nodes` would be avoided, the job is at fault rather
    than the nodes, as YARN's masters reckon.
    """

    __slots__ = ("_counts", "_failures_max", "_nodes", "_share_max", "avoided")

    def __init__(self, nodes: int, failures_max: int, share_max: float) -> None:
        self._nodes = nodes
        self._failures_max = failures_max
        self._share_max = share_max
        self._counts: dict[NodeId, int] = {}
        self.avoided: set[NodeId] = set()

    def count(self, node: NodeId) -> bool:
        """One more failed task on a node; True when the node is avoided from now on."""
        failures = self._counts[node] = self._counts.get(node, 0) + 1
        if failures < self._failures_max or node in self.avoided:
            return False
        if len(self.avoided) + 1 > self._share_max * self._nodes:
            return False
        self.avoided.add(node)
        return True

    def failures_on(self, node: NodeId) -> int:
        """Failed tasks of a node so far."""
        return self._counts.get(node, 0)


def diagnose(
    stage: str, task: int, attempts: int, node: NodeId, outcome: Outcome, exit_code: int, text: str
) -> str:
    """Why a job failed, in one line: stage, task, attempts, the last exit code and message."""
    how = "out of memory, " if outcome is Outcome.OUT_OF_MEMORY else ""
    detail = f": {text}" if text else ""
    return (
        f"stage {stage!r} task {task} failed {attempts} times, "
        f"last on {node} with {how}exit code {exit_code}{detail}"
    )
