"""Promises that need more than facts to be judged: what was sent, and what waits to be read."""

from sim.cluster import Simulation
from weft.model.errors import InvariantError
from weft.model.ids import AppId, ContainerId, NodeId, app_of_attempt
from weft.protocol.facts import Closed, Fact, NodeChanged, Placed, TaskStarted
from weft.protocol.messages import Address, AttemptAccepted, ContainersGranted, Outcome, ends_of


class Promises:
    """Watches one run; a broken promise raises InvariantError.

    * A success that a master has received is durable: the next attempt receives it as well.
    * A node whose message waits to be read is not declared lost.
    * A node that was given up starts nothing before it is accepted again (unless cores were made
      to give up early on purpose).
    * A node that was reported to an operator as out of service gets no work until it is put back.
    """

    def __init__(self, simulation: Simulation, *, expiry_s: float, early: bool) -> None:
        self._simulation = simulation
        self._expiry_s = expiry_s
        self._early = early
        self._told: dict[AppId, set[tuple[int, int]]] = {}
        self._lost: set[ContainerId] = set()
        self._states: dict[NodeId, str] = {}
        simulation.watchers.append(self.note)
        simulation.listen(self.message)

    def message(self, to: Address, message: object) -> None:
        """Check a message that is sent."""
        if isinstance(message, ContainersGranted):
            app = app_of_attempt(message.attempt_id)
            for end in (one for told in message.ended for one in ends_of(told)):
                if end.outcome is Outcome.SUCCEEDED and end.stage >= 0:
                    self._told.setdefault(app, set()).add((end.stage, end.task))
        elif isinstance(message, AttemptAccepted):
            known = {(done.stage, done.task) for done in message.finished}
            forgotten = self._told.get(app_of_attempt(message.attempt_id), set()) - known
            if forgotten:
                raise InvariantError(
                    f"a success that was reported is forgotten [{sorted(forgotten)}]"
                )

    def note(self, now: float, fact: Fact) -> None:
        """Check a fact that a core notes."""
        if isinstance(fact, NodeChanged):
            self._states[fact.node] = fact.state
            heard_s = self._simulation.waited.get(fact.node)
            if fact.state == "LOST" and heard_s is not None:
                silent_s = self._simulation.engine.now - heard_s
                if silent_s < 0.45 * self._expiry_s:
                    raise InvariantError(
                        f"a node is declared lost though its heartbeat is unread [{fact.node}]"
                    )
        elif isinstance(fact, Placed):
            if fact.node in self._simulation.out_of_service:
                raise InvariantError(
                    f"a node that was taken out of service gets work [{fact.node}]"
                )
        elif isinstance(fact, Closed):
            if fact.outcome is Outcome.LOST:
                self._lost.add(fact.container)
        elif (
            isinstance(fact, TaskStarted)
            and not self._early
            and fact.container in self._lost
            and self._states.get(fact.node) == "LOST"
        ):
            raise InvariantError(f"a node that was given up starts a task [{fact.node}]")
