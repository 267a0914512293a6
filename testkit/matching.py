"""A ledger, rows and a view without a manager around them, for tests of matchers only."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rm.ledger.asks import AskEntry, AskRows
from rm.ledger.ledger import Ledger
from rm.ledger.queues import QueueTree
from rm.ledger.running import RunningByEnd
from rm.ledger.view import View
from rm.match.protocol import Match, Matcher
from rm.match.registry import MATCHERS, make_matcher
from weft.model.queues import QueueSpec
from weft.model.resources import Kind, ResourceType, ResourceTypes, Vector
from weft.protocol.messages import Ask

THREE = ResourceTypes(
    (
        ResourceType("vcores", Kind.DIVISIBLE),
        ResourceType("memory_mb", Kind.RIGID),
        ResourceType("network_mbps", Kind.DIVISIBLE),
    )
)
TWO_QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))


# Matchers that go by the view alone; `yarn` keeps YARN's books, and YARN's rules instead of these.
VIEWING = [name for name in MATCHERS if name not in ("yarn", "yarn_fair")]


class MatcherHarness:
    """Books what a matcher answers, as `rm.placing.allocation.grant` does."""

    def __init__(
        self,
        matcher: str = "graphene",
        parameters: Mapping[str, Any] | None = None,
        queues: QueueSpec = TWO_QUEUES,
        types: ResourceTypes = THREE,
    ) -> None:
        self.types = types
        self.tree = QueueTree(queues)
        self.ledger = Ledger(types, self.tree)
        self.rows = AskRows(len(types))
        self.runs: list[RunningByEnd] = []
        self.view = View(types, self.tree, self.ledger, self.rows, lambda slot: self.runs[slot])
        self.matcher: Matcher = make_matcher(matcher, parameters)
        self.now = 0.0
        # Maps a container to its node, application and demand.
        self.held: dict[int, tuple[int, int, Any]] = {}
        self.labels = {"": 0, "gpu": 1}
        self._next = 1

    def add_node(self, capacity: Vector, rack: str = "r1", label: str = "") -> int:
        """Return a node slot."""
        slot = self.ledger.add_node()
        self.runs.append(RunningByEnd(len(self.types)))
        self.view.node_names.append(f"n{slot}")
        if rack not in self.view.rack_names:
            self.view.rack_names.append(rack)
        self.ledger.describe_node(slot, self.view.rack_names.index(rack), self.labels[label])
        self.ledger.set_node(slot, capacity, up=True)
        return slot

    def add_app(self, queue: str = "a", user: str = "u", work: float = 1.0) -> int:
        """Return an application slot with so much remaining work (and path)."""
        slot = self.ledger.open_app(self.tree.leaf(queue), user, 0, self.ledger.app_slots + 1)
        self.ledger.set_work_left(slot, work, work)
        self.matcher.app_joined(self.view, slot, self.now)
        return slot

    def ask(self, app: int, ask: Ask, racks: tuple[str, ...] = ()) -> AskEntry:
        """Return a row with `ask.total` containers pending."""
        entry = AskEntry(ask, app, np.array(ask.demand), self._next)
        self._next += 1
        self.rows.open(entry, self.labels[ask.label], racks, self.now)
        self.ledger.add_pending(app, entry.pending)
        return entry

    def owe(self, deficits: Mapping[str, float]) -> None:
        """Set Graphene's deficit counters of leaf queues, as an example states them."""
        counters = np.zeros(len(self.tree))
        for name, value in deficits.items():
            counters[self.tree.leaf(name)] = value
        state: Any = self.matcher
        state._counters = counters

    def owed(self) -> dict[str, float]:
        """Return the deficit counters by queue, by the last part of its path."""
        found = self.matcher.deficits(self.view)
        return {
            path.split(".")[-1]: value for path, value in zip(self.tree.paths, found, strict=True)
        }

    def match(self, node: int) -> Match:
        """Ask the matcher, changing nothing."""
        return self.matcher.match(self.view, node, self.now)

    def place(self, node: int, answer: Match) -> list[int]:
        """Book an answer; the containers."""
        made: list[int] = []
        for placement in answer.placements:
            entry = self.rows.entries[placement.row]
            assert entry is not None, placement
            limit = 1.0 + self.matcher.slack(self.view) if placement.overbooked else None
            self.ledger.grant(node, entry.app, entry.demand, placement.copies, limit, self.now)
            end_s = self.now + entry.ask.duration_s
            self.runs[node].add(self._next, placement.copies, end_s, entry.demand)
            for _ in range(placement.copies):
                self.held[self._next] = (node, entry.app, entry.demand)
                made.append(self._next)
                self._next += 1
            self.rows.take(entry, placement.copies, self.now)
            self.matcher.granted(self.view, node, placement, entry.app, self.now)
        self.matcher.matched(self.view, node, answer, self.now)
        self.rows.let_go_by(answer.declined)
        return made

    def beat(self, node: int) -> list[int]:
        """Match and book."""
        return self.place(node, self.match(node))

    def end(self, container: int) -> int:
        """End a container; return its node."""
        node, app, demand = self.held.pop(container)
        self.runs[node].drop(container)
        self.ledger.free(node, app, demand)
        self.matcher.ended(self.view, node, app, demand, self.now)
        return node
