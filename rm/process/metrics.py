"""The Resource Manager's series, from its facts."""

from rm.state.lifecycle import AppState, AttemptState, RmNodeState
from weft.model.ids import ContainerId
from weft.protocol.facts import (
    AppChanged,
    AttemptChanged,
    Closed,
    ClosedRun,
    Fact,
    NodeChanged,
    Placed,
    PlacedRun,
    PreemptionChosen,
    RunFact,
    count_of,
)
from weft.protocol.messages import AskType, Outcome
from weft.runtime.exposition import DURATION_BUCKETS_S, Exposition

ENDED = "Containers that ended"
NODES = "Nodes by state"
APPS = "Applications that have not ended, by state"
APPS_ENDED = "Applications that ended"
ATTEMPTS = "Attempts by state entered"
GRANTS = "Grants by kind of ask"
LEFTOVER = "Containers in leftover: granted to asks that could wait, and not ended"
_ENDED = {AppState.FINISHED.name, AppState.FAILED.name, AppState.KILLED.name}


class ManagerMetrics:
    """Turns facts into series; counters are by state, queue or outcome, never by application."""

    def __init__(self, exposition: Exposition) -> None:
        self._out = exposition
        # An application has its state, and when it was first seen in it.
        self._apps: dict[int, tuple[str, float]] = {}
        self._nodes: dict[str, str] = {}
        # An alert on a series that is not there never rings, so every state has one from the start.
        for state in RmNodeState:
            exposition.gauge("weft_nodes", NODES, 0.0, (("state", state.name),))
        for app in AppState:
            labels = (("state", app.name),)
            if app.name in _ENDED:
                exposition.counter("weft_apps_ended", APPS_ENDED, labels)
            else:
                exposition.gauge("weft_apps", APPS, 0.0, labels)
        for attempt in AttemptState:
            exposition.counter("weft_attempts", ATTEMPTS, (("state", attempt.name),))
        for kind in AskType:
            exposition.counter("weft_grants", GRANTS, (("kind", kind.name),))
        # A counter that begins at 0 shows its first event as a rate.
        self._ended = {
            outcome: exposition.counter(
                "weft_containers_ended", ENDED, (("outcome", outcome.name),)
            )
            for outcome in Outcome
        }
        # These were granted to ALTRUISTIC asks, and have not ended.
        self._yielded: set[ContainerId] = set()
        exposition.gauge("weft_leftover_containers", LEFTOVER, 0.0)

    def idle(self, nodes: int) -> None:
        """Count heartbeats that said nothing, and came many in one message."""
        text = "Heartbeats of nodes that said nothing, many in one message"
        self._out.count("weft_idle_heartbeats", text, nodes)

    def note(self, fact: Fact | RunFact, now: float = 0.0) -> None:
        """Take one fact in, or that of a run; `now` is in s on the cluster's clock."""
        out = self._out
        if isinstance(fact, Closed | ClosedRun):
            count = count_of(fact)
            if self._yielded:
                ended = self._yielded.intersection(range(fact.container, fact.container + count))
                self._yielded -= ended
                out.add("weft_leftover_containers", LEFTOVER, -len(ended))
            self._ended[fact.outcome].add(count)
        elif isinstance(fact, Placed | PlacedRun):
            text, count = "Containers granted", count_of(fact)
            out.count("weft_containers_granted", text, count, (("queue", fact.queue),))
            out.count("weft_grants", GRANTS, count, (("kind", fact.kind.name),))
            if fact.kind is AskType.ALTRUISTIC:
                self._yielded.update(range(fact.container, fact.container + count))
                out.add("weft_leftover_containers", LEFTOVER, count)
        elif isinstance(fact, PreemptionChosen):
            text = (
                "Containers whose masters have notice of preemption, by the queue that holds them"
            )
            out.count("weft_preemptions_chosen", text, 1, (("queue", fact.queue),))
        elif isinstance(fact, AppChanged):
            self._app_changed(fact, now)
        elif isinstance(fact, NodeChanged):
            self._node_changed(fact)
        elif isinstance(fact, AttemptChanged):
            out.count("weft_attempts", ATTEMPTS, 1, (("state", fact.state),))

    def _app_changed(self, fact: AppChanged, now: float) -> None:
        before, since_s = self._apps.pop(fact.app, ("", now))
        if before:
            self._out.add("weft_apps", APPS, -1, (("state", before),))
        if fact.state in _ENDED:
            labels = (("state", fact.state),)
            self._out.count("weft_apps_ended", APPS_ENDED, 1, labels)
            if before and fact.state == AppState.FINISHED.name:
                text = (
                    "Time from submission to end of applications that finished, s of cluster time"
                )
                self._out.histogram(
                    "weft_app_completion_seconds",
                    text,
                    (("queue", fact.queue),),
                    DURATION_BUCKETS_S,
                ).observe(now - since_s)
        else:
            self._apps[fact.app] = (fact.state, since_s)
            self._out.add("weft_apps", APPS, 1, (("state", fact.state),))

    def _node_changed(self, fact: NodeChanged) -> None:
        before = self._nodes.get(fact.node)
        if before is not None:
            self._out.add("weft_nodes", NODES, -1, (("state", before),))
        self._nodes[fact.node] = fact.state
        self._out.add("weft_nodes", NODES, 1, (("state", fact.state),))
