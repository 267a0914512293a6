"""Ends of containers that no manager noted, as they came while it was away.

A manager that starts anew knows what nodes tell that they run. What ran before and is not among it
has ended, and the node's next reports say how; what was on a node that never comes back is lost.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from rm.core import ResourceManager
from weft.model.ids import ContainerId, NodeId, app_of_container
from weft.protocol.effects import Recovered
from weft.protocol.event_unions import ManagerTold
from weft.protocol.facts import Closed
from weft.protocol.messages import NodeHeartbeated, NodeRegistered, Outcome, ends_of


class UnheardEnds:
    """Follows a manager's events; `runs` tells what runs by the messages so far, and where."""

    def __init__(self, runs: Callable[[], Mapping[ContainerId, NodeId]]) -> None:
        self._runs = runs
        # What has ended without a word how has the time of that, s.
        self._open: dict[ContainerId, tuple[NodeId, float]] = {}

    def answered(
        self, event: ManagerTold, now: float, manager: ResourceManager
    ) -> Iterator[tuple[Closed, float]]:
        """Yield ends with their times, s, once an event was handled.

        One may come twice: when it is known that it came, and when it is known how.
        """
        if type(event) is Recovered:
            self._open = {number: (node, -1.0) for number, node in self._runs().items()}
        if not self._open:
            return
        if type(event) is NodeHeartbeated:
            for end in chain.from_iterable(map(ends_of, event.ended)):
                node, ended_s = self._open.pop(end.container_id, ("", 0.0))
                if node:
                    words = (node, end.outcome, end.stage, end.task, end.attempt)
                    closed = Closed(end.container_id, *words, run_s=end.run_s)
                    yield closed, ended_s if ended_s >= 0 else now
        books = manager.books
        overdue = now > books.started_s + books.settings.node_expiry_s
        back = event.node_id if type(event) is NodeRegistered else ""
        for number, (node, ended_s) in list(self._open.items()):
            if number in books.holdings:
                del self._open[number]
            elif ended_s < 0:
                app = books.apps.get(app_of_container(number))
                over = overdue or app is None or app.finished_s > 0
                if over or node == back:
                    self._open[number] = (node, now)
                    outcome = Outcome.RELEASED if node == back else Outcome.LOST
                    yield Closed(number, node, outcome, -1, -1, 0), now
