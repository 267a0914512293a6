"""Delay scheduling: an ask that prefers other machines lets some opportunities go by.

Zaharia et al., EuroSys 2010, as YARN's schedulers count it: first for the preferred nodes, then for
their racks. How often an ask let go is in `view.rows.missed`; the core counts it.
"""

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from weft.model.dag import Ints
from weft.policies.compiled import kernel, making_kernel


@kernel
def waits(level: int, missed: int, node_delay: int, rack_delay: int) -> bool:
    """Return whether a row of nearness `level` (0: local) goes on waiting for a nearer node."""
    patience = 0
    if level >= 1:
        patience += node_delay
    if level >= 2:
        patience += rack_delay
    return missed < patience


@making_kernel
def waiting_rows(rows: Ints, level: Ints, missed: Ints, node_delay: int, rack_delay: int) -> Ints:
    """Return 1 for each of `rows` that goes on waiting for a nearer node, else 0; shape (k,)."""
    out = np.zeros(rows.shape[0], dtype=np.int64)
    for i in range(rows.shape[0]):
        row = rows[i]
        out[i] = 1 if waits(level[row], missed[row], node_delay, rack_delay) else 0
    return out


def delays(view: View, node_delay: int, rack_delay: int) -> tuple[int, int]:
    """Return both delays, at most one opportunity on each node in service (YARN's rule)."""
    if not view.rows.preferring:
        return 0, 0
    up: Bools = view.nodes.up[: view.node_count]
    count = int(np.count_nonzero(up))
    return min(node_delay, count), min(rack_delay, count)
