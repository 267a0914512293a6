"""The Resource Manager's series, from its facts."""

from rm.lifecycle import AppState
from weft.facts import AppChanged, AttemptChanged, Closed, Fact, Gauge, NodeChanged, Placed
from weft.live.exposition import Exposition

_ENDED = {AppState.FINISHED.name, AppState.FAILED.name, AppState.KILLED.name}


class ManagerMetrics:
    """Turns facts into series; series of applications are by state, never by application."""

    def __init__(self, exposition: Exposition) -> None:
        self._out = exposition
        self._apps: dict[int, str] = {}
        self._nodes: dict[str, str] = {}

    def note(self, fact: Fact) -> None:
        """Take one fact in."""
        out = self._out
        if isinstance(fact, Placed):
            text = "Containers granted"
            out.count("weft_containers_granted", text, 1, (("queue", fact.queue),))
            out.count("weft_grants", "Grants by kind of ask", 1, (("kind", fact.kind.name),))
        elif isinstance(fact, Closed):
            text = "Containers that ended"
            out.count("weft_containers_ended", text, 1, (("outcome", fact.outcome.name),))
        elif isinstance(fact, AppChanged):
            self._app_changed(fact)
        elif isinstance(fact, NodeChanged):
            self._node_changed(fact)
        elif isinstance(fact, AttemptChanged):
            out.count("weft_attempts", "Attempts by state entered", 1, (("state", fact.state),))
        elif isinstance(fact, Gauge):
            out.gauge(fact.name, fact.name.replace("_", " "), fact.value, fact.labels)

    def _app_changed(self, fact: AppChanged) -> None:
        text = "Applications that have not ended, by state"
        before = self._apps.pop(fact.app, None)
        if before is not None:
            self._out.add("weft_apps", text, -1, (("state", before),))
        if fact.state in _ENDED:
            labels = (("state", fact.state),)
            self._out.count("weft_apps_ended", "Applications that ended", 1, labels)
            self._out.drop("app", str(fact.app))
        else:
            self._apps[fact.app] = fact.state
            self._out.add("weft_apps", text, 1, (("state", fact.state),))

    def _node_changed(self, fact: NodeChanged) -> None:
        text = "Nodes by state"
        before = self._nodes.get(fact.node)
        if before is not None:
            self._out.add("weft_nodes", text, -1, (("state", before),))
        self._nodes[fact.node] = fact.state
        self._out.add("weft_nodes", text, 1, (("state", fact.state),))
        if fact.state != "RUNNING":
            self._out.drop("node", fact.node)
