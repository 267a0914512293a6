"""Pending asks by row: one row stands for all pending identical containers of one ask.

A row exists while its ask has something pending. Rows in use are `[0, count)`; an empty one has
`pending` 0 until a compaction closes the holes (order is kept), so that a kernel passes over a few
hundred rows, never over tasks. `serial` names an ask for good, a row number only until the next
event.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import numpy as np

from rm.ledger.asks_kernels import floor_of, is_floor, took
from rm.ledger.columns import Bools, Columns
from weft.model.dag import Floats, Ints
from weft.policies.compiled import direct
from weft.protocol.messages import Ask

NODE_LOCAL, RACK_LOCAL, REMOTE = 0, 1, 2
# More holes among the rows than this, beyond as many as are in use, are closed.
HOLES_MAX = 16
# No node carries this label.
NOWHERE = 1 << 62
# Every labelled node has one of these bits.
ANY_LABEL = -1


class AskEntry:
    """One ask of one attempt: what was wanted and granted so far under its id.

    `ask.total` and `granted` only grow, and both count from the attempt's first request on: that is
    why a request that comes twice, or late, can ask for nothing twice (`request_id`, of the newest
    message that told about the ask, tells which of two is the newer). A row is held exactly while
    `pending` is above 0; without one, `row` is -1. `app` is the application's slot, `demand` (d,)
    that of one container; `near` are the preferred nodes, and the racks as they are indexed.
    `any_label`: it may go to any node with a label, and to no other (a master where all have one).
    """

    __slots__ = (
        "any_label",
        "app",
        "ask",
        "demand",
        "granted",
        "near",
        "request_id",
        "row",
        "serial",
    )

    def __init__(self, ask: Ask, app: int, demand: Floats, serial: int) -> None:
        self.ask = ask
        self.app = app
        self.demand = demand
        self.serial = serial
        self.granted = 0
        self.request_id = 0
        self.row = -1
        self.any_label = False
        self.near: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def strict(self) -> bool:
        """Whether it may go nowhere but to the places that it names."""
        return self.ask.strict and bool(self.ask.nodes or self.ask.racks)

    def admits(self, node: str, rack: str) -> bool:
        """Return whether it may go to a node, as far as it names places."""
        return not self.strict or node in self.ask.nodes or rack in self.ask.racks

    @property
    def pending(self) -> int:
        """Containers still to be granted."""
        return max(0, self.ask.total - self.granted)


class Watcher(Protocol):
    """Who keeps books beside the ledger's: told at once of every change of what they count."""

    def node_set(self, node: int) -> None:
        """Hear that a node slot has another capacity, place or state."""

    def held(self, node: int, app: int, demand: Floats, count: int) -> None:
        """Hear of containers booked on a node; `count` below 0: freed. `app` -1: nobody's."""

    def asked(self, entry: AskEntry) -> None:
        """Hear that an ask was made, changed, withdrawn or served whole."""


class AskRows(Columns):
    """The rows; arrays have room for more than `count`, so slice them with it.

    `demand` (rows, d) is absolute, of one container, and `demand.T` is contiguous. `app` is the
    application's slot, `kind` an AskType, `label` the bit of the label needed, 0 for nodes without
    labels. `remote` is REMOTE where the ask prefers nodes or racks, else NODE_LOCAL. `missed`
    counts the opportunities declined for locality since the last local grant (YARN). `since_s` is
    when the ask last got something, or began to wait.

    `count` are the rows up to the last in use, and holes among them have `pending` 0; `live` are
    those in use, `preferring` those of them with a preference. `opened` are all rows so far: a new
    one is a reason to look at preemption.
    """

    pending: Ints
    demand: Floats
    duration_s: Floats
    pri_score: Floats
    app: Ints
    kind: Ints
    stage: Ints
    label: Ints
    gang: Bools
    remote: Ints
    missed: Ints
    serial: Ints
    since_s: Floats

    def __init__(self, d: int) -> None:
        self.count = 0
        self.live = 0
        self.opened = 0
        self.preferring = 0
        self.gangs = 0
        self.entries: list[AskEntry | None] = []
        # Gangs' asks are kept by application slot and stage, then by serial, beside which of these
        # changed and, by serial, whose each ask is.
        self.gang_parts: dict[tuple[int, int], dict[int, AskEntry]] = {}
        self.gang_changed: dict[tuple[int, int], None] = {}
        self._gang_of: dict[int, tuple[int, int]] = {}
        # These may go only to the places that they name; they are kept by serial.
        self.strict: dict[int, AskEntry] = {}
        self._by_node: dict[str, dict[int, AskEntry]] = {}
        self._by_rack: dict[str, dict[int, AskEntry]] = {}
        self._floor: Floats = np.full(d, np.inf)
        self._floor_stale = False
        self.watcher: Watcher | None = None
        # `rm.match.candidates` keeps all rows here as kernels take them, until one moves.
        self.shown: Any = None
        ints = ("pending", "app", "kind", "stage", "label", "remote", "missed", "serial")
        super().__init__(
            {
                **dict.fromkeys(ints, (np.int64, 0)),
                "demand": (np.float64, d),
                "duration_s": (np.float64, 0),
                "pri_score": (np.float64, 0),
                "gang": (np.bool_, 0),
                "since_s": (np.float64, 0),
            },
            room=64,
            across=True,
        )

    def _resize(self, room: int) -> None:
        super()._resize(room)
        self.shown = None
        columns = self.w["pending"], self.w["since_s"], self.w["missed"]
        self._took = partial(direct(took, *columns, 0, 0, 0.0), *columns)

    def open(self, entry: AskEntry, label: int, racks: tuple[str, ...], now: float) -> None:
        """Give an ask with something pending a row; `racks` are those of its preferred nodes."""
        row, self.shown = self.count, None
        self.count += 1
        self.live += 1
        self.opened += 1
        if self.count > self.room:
            self.grow_to(self.count)
        self.entries.append(entry)
        entry.row = row
        self.w["serial"][row] = entry.serial
        self.w["app"][row] = entry.app
        self.w["missed"][row] = 0
        self.w["since_s"][row] = now
        self.w["remote"][row] = NODE_LOCAL
        self.w["gang"][row] = False
        self.write(entry, label, racks)

    def write(self, entry: AskEntry, label: int, racks: tuple[str, ...]) -> None:
        """Bring the row of an ask up to date with it."""
        row, ask, columns = entry.row, entry.ask, self.w
        self._forget_preference(entry)
        columns["pending"][row] = entry.pending
        columns["demand"][row] = entry.demand
        columns["duration_s"][row] = ask.duration_s
        columns["pri_score"][row] = ask.pri_score
        columns["kind"][row] = ask.kind
        columns["stage"][row] = ask.stage
        columns["label"][row] = label
        if ask.gang or columns["gang"][row]:
            self._part_changed(entry, ask.gang)
        self.gangs += int(ask.gang) - int(columns["gang"][row])
        columns["gang"][row] = ask.gang
        if entry.strict:
            self.strict[entry.serial] = entry
        if ask.nodes or racks:
            columns["remote"][row] = REMOTE
            self.preferring += 1
            entry.near = (ask.nodes, racks)
            for index, names in ((self._by_node, ask.nodes), (self._by_rack, racks)):
                for name in names:
                    index.setdefault(name, {})[entry.serial] = entry
        self._floor_stale = True
        if self.watcher is not None:
            self.watcher.asked(entry)

    def take(self, entry: AskEntry, count: int, now: float) -> None:
        """Book that `count` containers were granted.

        The locality wait begins anew, and the last container closes the row.
        """
        entry.granted = granted = entry.granted + count
        left = entry.ask.total - granted
        self._took(entry.row, left, now)
        if left <= 0:
            self.close(entry)

    def close(self, entry: AskEntry) -> None:
        """Close the row of an ask of which nothing is pending any more."""
        row = entry.row
        self._forget_preference(entry)
        if self.gang[row]:
            self._part_changed(entry, False)
        self.gangs -= int(self.gang[row])
        self.w["pending"][row] = 0
        self.w["gang"][row] = False
        self.entries[row] = None
        entry.row = -1
        self.live -= 1
        self._floor_stale = True
        if self.watcher is not None:
            self.watcher.asked(entry)

    def let_go_by(self, rows: Iterable[int]) -> None:
        """Count one more opportunity that rows declined for a nearer node."""
        for row in rows:
            self.w["missed"][row] += 1

    def relabel(self, bit_of: Callable[[str], int]) -> None:
        """Set the labels' bits of all rows anew."""
        for entry in self.entries:
            if entry is not None:
                self.w["label"][entry.row] = bit_of(entry.ask.label)

    def _part_changed(self, entry: AskEntry, waits: bool) -> None:
        """Note that what a gang waits for changed; `waits`: this ask is part of it now."""
        key = entry.app, entry.ask.stage
        parts = self.gang_parts.setdefault(key, {})
        parts.pop(entry.serial, None)
        self._gang_of.pop(entry.serial, None)
        if waits:
            parts[entry.serial] = entry
            self._gang_of[entry.serial] = key
        self.gang_changed[key] = None

    def gang_of(self, serial: int) -> tuple[int, int] | None:
        """Return the application slot and stage of the gang that an ask is part of, if it waits."""
        return self._gang_of.get(serial)

    def gangs_moved(self, app: int) -> None:
        """Note that the gangs of an application stand elsewhere in the line, or use other nodes."""
        self.gang_changed.update((key, None) for key in self.gang_parts if key[0] == app)

    def reveal(self, rows: list[int]) -> tuple[Bools, Ints]:
        """Show rows of gangs to matchers as plain asks that wait for no place, until `conceal`."""
        before = self.gang[rows].copy(), self.missed[rows].copy()
        self.w["gang"][rows] = False
        self.w["missed"][rows] = NOWHERE
        return before

    def conceal(self, rows: list[int], before: tuple[Bools, Ints]) -> None:
        """Show rows as they are, with what `reveal` answered."""
        self.w["gang"][rows], self.w["missed"][rows] = before

    def hide(self, rows: list[int]) -> Bools:
        """Keep rows from matchers until `show` with what this answers."""
        before = self.gang[rows].copy()
        self.w["gang"][rows] = True
        return before

    def show(self, rows: list[int], before: Bools) -> None:
        """Show rows as they are."""
        self.w["gang"][rows] = before

    def set_aside(self, row: int) -> int:
        """Show a row as if nothing of it were pending; return what `put_back` needs."""
        pending = int(self.pending[row])
        self.w["pending"][row] = 0
        return pending

    def put_back(self, row: int, pending: int) -> None:
        """Show a row as it is."""
        self.w["pending"][row] = pending

    def compact(self) -> None:
        """Close the holes when they are more than the rows; row numbers change."""
        if self.count <= 2 * self.live + HOLES_MAX:
            return
        kept = np.flatnonzero(self.pending[: self.count] > 0)
        for column in self.w.values():
            column[: len(kept)] = column[kept]
        self.entries = [self.entries[row] for row in kept]
        self.count, self.shown = len(kept), None
        for row, entry in enumerate(self.entries):
            if entry is not None:
                entry.row = row

    def floor(self) -> Floats:
        """Return the least that any pending container needs of each resource, shape (d,).

        The same object for as long as the amounts stay, so that others may remember it.
        """
        if self._floor_stale:
            self._floor_stale = False
            if not is_floor(self._floor, self.count, self.pending, self.demand):
                self._floor = floor_of(self.count, self.pending, self.demand)
        return self._floor

    def levels(self, node: str, rack: str) -> Ints:
        """Return how near each row's input is to a node: NODE_LOCAL, RACK_LOCAL or REMOTE.

        An ask without preference is NODE_LOCAL. An ask that prefers racks only is as near as can be
        on any node of them.
        """
        if not self.preferring:
            return self.remote[: self.count]
        levels = self.remote[: self.count].copy()
        for entry in self._by_rack.get(rack, {}).values():
            levels[entry.row] = RACK_LOCAL if entry.ask.nodes else NODE_LOCAL
        for entry in self._by_node.get(node, {}).values():
            levels[entry.row] = NODE_LOCAL
        levels.flags.writeable = False
        return levels

    def labels(self, node: str, rack: str) -> Ints:
        """Return the label that each row needs on a node; where it is barred, one that none has."""
        labels = self.label.copy()
        for entry in self.strict.values():
            if not entry.admits(node, rack):
                labels[entry.row] = NOWHERE
        labels.flags.writeable = False
        return labels

    def _forget_preference(self, entry: AskEntry) -> None:
        self.strict.pop(entry.serial, None)
        if self.remote[entry.row] != REMOTE:
            return
        self.w["remote"][entry.row] = NODE_LOCAL
        self.preferring -= 1
        for index, names in zip((self._by_node, self._by_rack), entry.near, strict=True):
            for name in names:
                found = index.get(name, {})
                found.pop(entry.serial, None)
                if not found:
                    index.pop(name, None)
