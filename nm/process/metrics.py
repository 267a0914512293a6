"""A Node Manager process's series, from its nodes' facts."""

from weft.model.ids import NodeId
from weft.protocol.facts import (
    Fact,
    RunFact,
    StartedRun,
    StoppedRun,
    TaskStarted,
    TaskStopped,
    count_of,
)
from weft.protocol.messages import Outcome
from weft.runtime.exposition import DURATION_BUCKETS_S, Exposition, Histogram

ENDED = "Tasks and masters that ended"
RUNNING = "Tasks and masters that run now"


class NodeMetrics:
    """Turns facts into series, summed over the nodes of the process."""

    def __init__(self, exposition: Exposition) -> None:
        self._out = exposition
        self._started = exposition.counter("weft_tasks_started", "Tasks and masters started")
        self._running = exposition.summed("weft_tasks_running", RUNNING)
        # A counter that begins at 0 shows its first event as a rate.
        self._ended = {
            outcome: exposition.counter("weft_tasks_ended", ENDED, (("outcome", outcome.name),))
            for outcome in Outcome
        }
        self._took: dict[Outcome, Histogram] = {}

    def note(self, fact: Fact | RunFact) -> None:
        """Take one fact in, or that of a run."""
        if isinstance(fact, TaskStopped | StoppedRun):
            count, outcome = count_of(fact), fact.outcome
            self._ended[outcome].add(count)
            self._running.add(-count)
            if fact.stage >= 0:
                took = self._took.get(outcome)
                if took is None:
                    took = self._took[outcome] = self._out.histogram(
                        "weft_task_run_seconds",
                        "Time that tasks ran, s of cluster time",
                        (("outcome", outcome.name),),
                        DURATION_BUCKETS_S,
                    )
                took.observe(fact.run_s, count)
        elif isinstance(fact, TaskStarted | StartedRun):
            count = count_of(fact)
            self._started.add(count)
            self._running.add(count)

    def found(self, processes: int) -> None:
        """Count processes of an earlier run of this node manager that are kept."""
        self._out.count("weft_processes_found", "Processes of an earlier run", processes)
        self._running.add(processes)

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
