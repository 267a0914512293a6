"""What matchers see: pending asks by row, and nodes, applications, users and queues by slot.

All arrays are read-only and hold until the next event; slice rows with `view.rows.count`. Amounts
are absolute; divide by `capacity[node]` for packing scores and by `total` (C) for work and fairness
(docs/rules.md, rules 1, 2).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from rm.ledger.asks import AskRows, Watcher
from rm.ledger.columns import Bools
from rm.ledger.ledger import AppColumns, Ledger, NodeColumns, QueueColumns, UserColumns
from rm.ledger.queues import QueueTree
from rm.ledger.running import RunningByEnd
from weft.model.dag import Floats, Ints
from weft.model.resources import ResourceTypes

_NOBODY: Bools = np.zeros((0, 0), dtype=np.bool_)


class View:
    """Read-only; one object for the life of the manager, always up to date.

    `nodes` is by node slot, sliced with `node_count`; `apps` by application slot, sliced with
    `app_slots`, where those of ended ones are not `active`; `users` by (leaf queue, user) slot;
    `queues` and `by_queue`, which has what each queue with all below it holds and asks, by queue
    slot. `runs` returns the containers on a node slot, by expected end. `rigid` (d,) says where
    over-allocation is never granted. `label_bits` has a bit for each label that nodes carry.
    """

    def __init__(
        self,
        types: ResourceTypes,
        queues: QueueTree,
        ledger: Ledger,
        rows: AskRows,
        runs: Callable[[int], RunningByEnd],
    ) -> None:
        self.types = types
        self.queues = queues
        self.rows: AskRows = rows
        self._ledger = ledger
        self.nodes: NodeColumns = ledger.nodes
        self.apps: AppColumns = ledger.apps
        self.users: UserColumns = ledger.users
        self.by_queue: QueueColumns = ledger.by_queue
        self.runs = runs
        self._banned: dict[int, set[int]] = {}
        self._nobody: Bools = np.zeros(0, dtype=np.bool_)
        self.node_names: list[str] = []
        self.rack_names: list[str] = []
        # `rm.match.candidates` keeps three things here: the limits where none can bind, room for
        # candidates, and nodes by slot.
        self.idle_limits: Any = None
        self.room: Any = None
        self.sites: dict[int, Any] = {}
        self.rigid: Bools = ledger.rigid
        self.label_bits: dict[str, int] = {}
        ledger.moved = self._moved

    @property
    def total(self) -> Floats:
        """C: the capacity of all nodes that are up, shape (d,)."""
        return self._ledger.total

    @property
    def node_count(self) -> int:
        """Node slots in use, of nodes up or not."""
        return self._ledger.node_count

    @property
    def app_slots(self) -> int:
        """Application slots in use or free again."""
        return self._ledger.app_slots

    def levels(self, node: int) -> Ints:
        """Return NODE_LOCAL (also without preference), RACK_LOCAL or REMOTE by row, for a node."""
        if not self.rows.preferring:
            return self.rows.remote[: self.rows.count]
        rack = self.rack_names[int(self.nodes.rack[node])]
        return self.rows.levels(self.node_names[node], rack)

    def labels(self, node: int) -> Ints:
        """Return, by row, the label that the row needs on a node.

        Rows that must not go there need one that no node has.
        """
        if not self.rows.strict:
            return self.rows.label
        return self.rows.labels(self.node_names[node], self.rack_names[int(self.nodes.rack[node])])

    def banned(self, node: int) -> Bools:
        """Return by application slot which must not use a node (their masters' black lists).

        It has an entry for each slot that the table of applications has room for.
        """
        if len(self._nobody) != self.apps.room:
            self._nobody = np.zeros(self.apps.room, dtype=np.bool_)
            self._nobody.flags.writeable = False
        if node not in self._banned:
            return self._nobody
        banned = np.zeros(len(self._nobody), dtype=np.bool_)
        banned[list(self._banned[node])] = True
        banned.flags.writeable = False
        return banned

    def barred(self, rows: Ints) -> Bools:
        """Return which nodes rows must not use by black lists or strict places, (k, nodes).

        Of no length where no row is kept off a node by either.
        """
        if not self._banned and not self.rows.strict:
            return _NOBODY
        out = np.zeros((len(rows), len(self.nodes.up)), dtype=np.bool_)
        for node, apps in self._banned.items():
            out[:, node] = np.isin(self.rows.app[rows], list(apps))
        for i, row in enumerate(rows.tolist()):
            entry = self.rows.entries[row]
            if entry is not None and entry.strict:
                racks = self.nodes.rack[: self.node_count].tolist()
                for node, rack in enumerate(racks):
                    out[i, node] |= not entry.admits(self.node_names[node], self.rack_names[rack])
        return out

    def user_name(self, app: int) -> str:
        """Return the user of an application slot."""
        return self._ledger.user_name(app)

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of every change of what is held and asked from now on."""
        self._ledger.watcher = self.rows.watcher = watcher

    def _moved(self) -> None:
        """Forget what is kept of tables that are no longer those that are used."""
        self.sites.clear()
        self.idle_limits = None

    def set_aside(self, row: int) -> int:
        """Show a row as if nothing of it were pending, until `put_back` with what this answers.

        Whoever asks a matcher for its next choice does so, and puts all back before it returns.
        """
        return self.rows.set_aside(row)

    def put_back(self, row: int, pending: int) -> None:
        """Show a row as it is."""
        self.rows.put_back(row, pending)

    # -- for the core only -------------------------------------------------------------------------

    def forget(self, node: int) -> None:
        """Drop what is kept of a node slot that becomes another node's."""
        self._banned.pop(node, None)
        self.sites.pop(node, None)

    def ban(self, node: int, app: int, on: bool) -> None:
        """Note (or forget) that an application must not use a node."""
        self.sites.pop(node, None)
        if on:
            self._banned.setdefault(node, set()).add(app)
        elif node in self._banned:
            self._banned[node].discard(app)
            if not self._banned[node]:
                del self._banned[node]
