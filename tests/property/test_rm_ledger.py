"""The ledger's arrays equal a plain count of the containers, whatever the order of deeds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rm.ledger.asks import AskEntry, AskRows
from rm.ledger.ledger import Ledger
from rm.ledger.queues import QueueTree
from testkit.builders import TWO_TYPES, ask
from weft.model.dag import Floats
from weft.model.errors import InvariantError
from weft.model.queues import QueueSpec
from weft.model.resources import ResourceTypes

TREE = QueueTree(
    QueueSpec(
        "root",
        children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5, children=(QueueSpec("c", 1.0),))),
    )
)
ONE_TYPE = ResourceTypes(TWO_TYPES.types[:1])
LEAVES = [TREE.leaf("a"), TREE.leaf("c")]
SIZES = st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5])
PLACES = st.integers(0, 3)


class Books(RuleBasedStateMachine):
    """Random booking, freeing, moving and closing against a list of containers."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(TWO_TYPES, TREE)
        self.held: list[tuple[int, int, Floats]] = []
        self.apps: list[int] = []
        for slot in range(4):
            assert self.ledger.add_node() == slot
            self.ledger.set_node(slot, (4.0, 8.0), up=True)

    @rule(leaf=st.sampled_from(LEAVES), user=st.sampled_from("uv"))
    def open_app(self, leaf: int, user: str) -> None:
        slot = self.ledger.open_app(leaf, user, 0, len(self.apps))
        assert slot not in self.apps
        self.apps.append(slot)

    @precondition(lambda self: self.apps)
    @rule(node=PLACES, which=st.integers(0), count=st.integers(1, 4), v=SIZES, m=SIZES)
    def book(self, node: int, which: int, count: int, v: float, m: float) -> None:
        app, demand = self.apps[which % len(self.apps)], np.array([v, m])
        free = np.array([4.0, 8.0]) - sum((d for n, _, d in self.held if n == node), np.zeros(2))
        before = self.ledger.nodes.held.copy()
        if (count * demand > free + 1e-6).any():
            with pytest.raises(InvariantError, match="does not fit"):
                self.ledger.book(node, app, demand, count)
            assert (self.ledger.nodes.held == before).all(), "a refusal changes nothing"
            return
        self.ledger.book(node, app, demand, count)
        self.held.extend([(node, app, demand)] * count)

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0))
    def free(self, which: int) -> None:
        node, app, demand = self.held.pop(which % len(self.held))
        self.ledger.free(node, app, demand)

    @precondition(lambda self: self.apps)
    @rule(which=st.integers(0), leaf=st.sampled_from(LEAVES), user=st.sampled_from("uv"))
    def move(self, which: int, leaf: int, user: str) -> None:
        self.ledger.move_app(self.apps[which % len(self.apps)], leaf, user)

    @precondition(lambda self: self.apps)
    @rule(which=st.integers(0))
    def close(self, which: int) -> None:
        app = self.apps[which % len(self.apps)]
        if any(of == app for _, of, _ in self.held):
            with pytest.raises(InvariantError, match="still holds"):
                self.ledger.close_app(app)
            return
        self.ledger.close_app(app)
        self.apps.remove(app)

    @invariant()
    def the_arrays_are_the_sum_of_the_containers(self) -> None:
        ledger = self.ledger
        ledger.check([(n, a, tuple(d)) for n, a, d in self.held], np.ones(2), set())
        for (queue, _), user in ledger.user_slots.items():
            apps = [a for a in self.apps if ledger.apps.user[a] == user]
            assert ledger.users.apps[user] == len(apps)
            mine = sum((d for _, a, d in self.held if a in apps), np.zeros(2))
            assert np.allclose(ledger.users.held[user], mine)
            assert ledger.users.queue[user] == queue
        with_apps = {(int(ledger.apps.queue[a]), int(ledger.apps.user[a])) for a in self.apps}
        assert len(ledger.user_slots) == len(with_apps), "users without applications hold no slot"
        for node in range(4):
            if not any(n == node for n, _, _ in self.held):
                assert not ledger.nodes.held[node].any(), "nothing is left behind by rounding"
        for queue in range(len(ledger.queues)):
            below = [
                app
                for _, app, _ in self.held
                if app >= 0 and queue in ledger.queues.chains[ledger.apps.queue[app]]
            ]
            assert ledger.by_queue.containers[queue] == len(below)
            if not below:
                assert not ledger.by_queue.held[queue].any(), "nothing is left behind by rounding"


class Rows(RuleBasedStateMachine):
    """Random asks and grants: each ask with something pending has exactly one row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = AskRows(2)
        self.entries: list[AskEntry] = []

    @rule(total=st.integers(1, 5), v=SIZES, near=st.sampled_from([(), ("n1",), ("n1", "n2")]))
    def open(self, total: int, v: float, near: tuple[str, ...]) -> None:
        made = ask(len(self.entries), total, (v, 1.0), nodes=near)
        entry = AskEntry(made, 0, np.array(made.demand), len(self.entries) + 1)
        self.entries.append(entry)
        self.rows.open(entry, 0, ("r1",) if near else (), 0.0)

    @precondition(lambda self: any(e.row >= 0 for e in self.entries))
    @rule(which=st.integers(0), count=st.integers(1, 5))
    def take(self, which: int, count: int) -> None:
        live = [e for e in self.entries if e.row >= 0]
        entry = live[which % len(live)]
        self.rows.take(entry, min(count, entry.pending), 1.0)

    @precondition(lambda self: any(e.row >= 0 for e in self.entries))
    @rule(which=st.integers(0), more=st.integers(1, 9), near=st.sampled_from([(), ("n3",)]))
    def rewrite(self, which: int, more: int, near: tuple[str, ...]) -> None:
        live = [e for e in self.entries if e.row >= 0]
        entry = live[which % len(live)]
        entry.ask = replace(entry.ask, total=entry.granted + more, nodes=near)
        self.rows.write(entry, 0, ("r1",) if near else ())

    @rule()
    def compact(self) -> None:
        self.rows.compact()

    @invariant()
    def every_pending_ask_has_its_row(self) -> None:
        rows = self.rows
        live = [e for e in self.entries if e.pending]
        assert rows.live == len(live) == sum(e is not None for e in rows.entries)
        for entry in live:
            assert rows.entries[entry.row] is entry
            assert rows.pending[entry.row] == entry.pending
            assert rows.serial[entry.row] == entry.serial
        levels = rows.levels("n1", "r1")
        for entry in live:
            near = entry.ask.nodes
            assert levels[entry.row] == (0 if not near or "n1" in near else 1)
        if live:
            assert rows.floor()[0] == min(e.demand[0] for e in live)
        assert rows.preferring == sum(bool(e.ask.nodes) for e in live)


TestBooks = Books.TestCase
TestRows = Rows.TestCase
TestBooks.settings = TestRows.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)


@pytest.mark.parametrize("types", [ONE_TYPE, TWO_TYPES], ids=["one", "two"])
def test_the_total_is_the_sum_of_the_nodes_that_are_up_to_the_last_bit(
    types: ResourceTypes,
) -> None:
    rng = np.random.default_rng(1)
    ledger = Ledger(types, TREE)
    for _ in range(600):
        slot = int(rng.integers(ledger.node_count + 1)) if rng.random() < 0.3 else ledger.node_count
        if slot == ledger.node_count:
            ledger.add_node()
        elif rng.random() < 0.3:
            ledger.clear_node(slot)  # it may become another one's
        ledger.set_node(slot, tuple(rng.random(len(types)) * 100), up=rng.random() < 0.9)
        nodes, n = ledger.nodes, ledger.node_count
        assert (ledger.total == nodes.capacity[:n][nodes.up[:n]].sum(axis=0)).all()
