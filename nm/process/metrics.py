"""A Node Manager process's series, from its nodes' facts."""

from weft.facts import (
    Fact,
    Gauge,
    RunFact,
    StartedRun,
    StoppedRun,
    TaskStarted,
    TaskStopped,
    count_of,
)
from weft.ids import NodeId
from weft.live.exposition import DURATION_BUCKETS_S, Exposition
from weft.messages import Outcome

ENDED = "Tasks and masters that ended"


class NodeMetrics:
    """Turns facts into series, summed over the nodes of the process."""

    def __init__(self, exposition: Exposition) -> None:
        self._out = exposition
        for outcome in Outcome:  # a counter that begins at 0 shows its first event as a rate
            exposition.count("weft_tasks_ended", ENDED, 0, (("outcome", outcome.name),))

    def note(self, fact: Fact | RunFact) -> None:
        """Take one fact in, or that of a run."""
        out = self._out
        if isinstance(fact, TaskStarted | StartedRun):
            count = count_of(fact)
            out.count("weft_tasks_started", "Tasks and masters started", count)
            out.add("weft_tasks_running", "Tasks and masters that run now", count)
        elif isinstance(fact, TaskStopped | StoppedRun):
            count, labels = count_of(fact), (("outcome", fact.outcome.name),)
            out.count("weft_tasks_ended", ENDED, count, labels)
            out.add("weft_tasks_running", "Tasks and masters that run now", -count)
            if fact.stage >= 0:
                text = "Time that tasks ran, s of cluster time"
                out.histogram("weft_task_run_seconds", text, labels, DURATION_BUCKETS_S).observe(
                    fact.run_s, count
                )
        elif isinstance(fact, Gauge):
            out.gauge(fact.name, fact.name.replace("_", " "), fact.value, fact.labels)

    def found(self, processes: int) -> None:
        """Count processes of an earlier run of this node manager that are kept."""
        self._out.count("weft_processes_found", "Processes of an earlier run", processes)
        self._out.add("weft_tasks_running", "Tasks and masters that run now", processes)

    def monitored(self, took_s: float) -> None:
        """Observe how long one look at what all containers use took (COBRA table IV)."""
        text = "Time that one look at the use of all containers took, s"
        self._out.histogram("weft_monitor_seconds", text).observe(took_s)

    def hosted(self, nodes: int) -> None:
        """Set how many nodes this process drives now."""
        self._out.gauge("weft_hosted_nodes", "Nodes of this process", nodes)

    def gone(self, node: NodeId) -> None:
        """Drop the series of a node that left."""
        self._out.drop("node", node)
