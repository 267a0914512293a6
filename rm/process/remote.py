"""A matcher of another process, in any language, asked by gRPC (proto/matcher.proto)."""

import time

import numpy as np
import structlog

from rm.ledger.view import View
from rm.match.choices import Choices
from rm.match.protocol import NOTHING, BaseMatcher, Match
from weft.model.dag import Ints
from weft.model.errors import InputError, PolicyError, WeftError
from weft.protocol.record import changed
from weft.wire.matching import MatcherChannel, Offer, Offers

# A matcher that starts beside the manager is waited for.
FIRST_PATIENCE_S = 10.0
# One that did not answer is not asked again for so long, then for twice as long.
PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
COPIES_MAX = 1 << 31
# So many picks of one answer may break a rule; a matcher that breaks more is listened to no
# further.
REFUSED_PICKS_MAX = 1_000
NAME_CHARS_MAX = 100

log = structlog.get_logger("rm")


class InOrder(BaseMatcher):
    """Serves asks in the order of submission: what a remote matcher's absence comes down to."""

    name = "in_order"

    def match(self, view: View, node: int, now: float) -> Match:
        """Give each application what it asks for, the earliest first."""
        choices = Choices(view, node, now)
        for chosen in range(len(choices)):
            choices.pick(chosen, COPIES_MAX)
        return choices.match()


class RemoteMatcher(BaseMatcher):
    """Leaves each node's picks to the service at `address`.

    While it does not answer within `timeout_s`, the asks are served in the order of submission
    (`otherwise="order"`), or the run ends (`otherwise="fail"`, for studies).
    """

    name = "remote"

    def __init__(self, address: str = "", timeout_s: float = 0.5, otherwise: str = "order") -> None:
        if not address:
            raise InputError("matcher.address", "expected HOST:PORT or unix:/PATH")
        if not 0 < timeout_s <= 60:
            raise InputError("matcher.timeout_s", f"expected s up to 60, got {timeout_s:g}")
        if otherwise not in ("order", "fail"):
            raise InputError("matcher.otherwise", f"expected order or fail, got {otherwise!r}")
        self.address = address
        self.otherwise = otherwise
        self._unanswered = self._refused = 0
        self._channel = MatcherChannel(address, timeout_s)
        self._known = False
        self._patience_s, self._pause_s = FIRST_PATIENCE_S, PAUSE_S
        self._timeout_s = timeout_s
        self._quiet_until = 0.0

    def match(self, view: View, node: int, now: float) -> Match:
        """Ask what to serve on a node; its answer is checked pick by pick."""
        choices = Choices(view, node, now)
        if not choices.count:
            return NOTHING
        shown = np.flatnonzero(choices.open).tolist()
        refused = 0
        for chosen, copies in self._picks(view, node, now, choices, shown):
            if not 0 <= chosen < len(shown) or not choices.pick(shown[chosen], copies):
                refused += 1
                if refused >= REFUSED_PICKS_MAX:
                    break
        self._refused += refused
        return changed(choices.match(), settled=not choices.count)

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Describe the cluster anew before the next question."""
        self._known = False

    def troubles(self) -> tuple[int, int]:
        """Return (decisions without an answer, picks that broke a rule) since the last call."""
        found = (self._unanswered, self._refused)
        self._unanswered = self._refused = 0
        return found

    def _picks(
        self, view: View, node: int, now: float, choices: Choices, shown: list[int]
    ) -> list[tuple[int, int]]:
        problem = "is left alone for a moment"
        if time.monotonic() >= self._quiet_until:
            try:
                if not self._known:
                    told = self._channel.describe(
                        view.types.names, view.queues.paths, self._patience_s
                    )
                    log.info("matcher found", address=self.address, name=told[:NAME_CHARS_MAX])
                    self._known = True
                answer = self._channel.match(_offers(view, node, now, choices, shown))
                self._pause_s = PAUSE_S
                return answer
            except WeftError as error:
                problem = str(error)
                # While the policy waits here, the manager waits with it.
                self._patience_s = self._timeout_s
                self._quiet_until = time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
                log.warning("matcher does not answer", address=self.address, problem=problem)
        if self.otherwise == "fail":
            raise PolicyError(problem)
        self._unanswered += 1
        return [(i, COPIES_MAX) for i in range(len(shown))]


def _offers(view: View, node: int, now: float, choices: Choices, shown: list[int]) -> Offers:
    rows, apps, total = view.rows, view.apps, np.maximum(view.total, 1e-300)
    offered = []
    for i in shown:
        row, app = int(choices.rows[i]), int(choices.found.app[i])
        offered.append(
            Offer(
                int(apps.order[app]),
                int(rows.stage[row]),
                int(apps.queue[app]),
                int(apps.priority[app]),
                rows.demand[row].tolist(),
                int(rows.pending[row]),
                float(rows.duration_s[row]),
                float(rows.pri_score[row]),
                float(apps.remaining[app]),
                float(apps.path[app]),
                float((apps.held[app] / total).max()),
                max(0.0, now - float(rows.since_s[row])),
                int(choices.found.level[i]),
            )
        )
    nodes = view.nodes
    return Offers(
        now,
        view.node_names[node],
        nodes.available[node].tolist(),
        nodes.capacity[node].tolist(),
        view.total.tolist(),
        offered,
    )
