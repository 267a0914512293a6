"""A container of nobody takes room on its node and counts for no application, user or queue."""

import numpy as np

from testkit.matching import MatcherHarness


def test_only_the_node_holds_what_nobody_owns() -> None:
    harness = MatcherHarness()
    node, app = harness.add_node((4.0, 8.0, 8.0)), harness.add_app()
    demand = np.array([1.0, 2.0, 0.5])
    harness.ledger.book(node, app, demand, 1)
    ledger = harness.ledger
    before = [t.held.copy() for t in (ledger.apps, ledger.users, ledger.by_queue)]
    for number in (1, 2):
        ledger.book(node, -1, demand, 1)
        assert ledger.nodes.containers[node] == 1 + number
        np.testing.assert_allclose(ledger.nodes.held[node], demand * (1 + number))
        for held, table in zip(before, (ledger.apps, ledger.users, ledger.by_queue), strict=True):
            np.testing.assert_array_equal(table.held, held)
    ledger.free(node, -1, demand)
    ledger.free(node, -1, demand)
    for held, table in zip(before, (ledger.apps, ledger.users, ledger.by_queue), strict=True):
        np.testing.assert_array_equal(table.held, held)
    np.testing.assert_allclose(ledger.nodes.available[node], np.array([4.0, 8.0, 8.0]) - demand)
    assert ledger.apps.containers[app] == 1
