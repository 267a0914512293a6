"""A master's asks as cumulative rows, and what it still owes the Resource Manager.

A row counts what was granted under it; `total = granted + wanted`, so that asking twice is
impossible. A total may fall when less is wanted; the newest request then counts.
"""

from collections.abc import Callable

from am.task_groups import AskRow, TaskGroup
from weft.model.errors import InvariantError
from weft.model.ids import ContainerId, NodeId
from weft.protocol.messages import Ask, AskType, ContainersAsked
from weft.protocol.outbox import Outbox

# The outbox keys asks by id, releases by container, and the blacklist by this.
BLACKLIST = 0


class AskTable:
    """Every row of one attempt, by ask id and by (group, kind)."""

    __slots__ = ("_acks", "_dirty", "_lossless", "_next", "_outbox", "epoch", "rows")

    def __init__(self, resend_after_s: float, *, lossless: bool = False) -> None:
        self._lossless = lossless
        # The manager of this epoch knows these rows.
        self.epoch = 0
        self.rows: dict[int, AskRow] = {}
        self._dirty: dict[int, AskRow] = {}
        self._outbox: Outbox[int, Ask | ContainerId | tuple[NodeId, ...]] = Outbox(
            resend_after_s, lossless=lossless
        )
        self._acks: list[int] = []
        self._next = 1

    @property
    def owes(self) -> bool:
        """Whether there is something to send at once (acknowledgements alone can wait)."""
        return bool(self._dirty) or self._outbox.fresh > 0

    @property
    def silent(self) -> bool:
        """Whether the next message would carry no news.

        Whether acknowledgements are awaited is the manager's to know.
        """
        return not (self._dirty or self._outbox.owes)

    def want(self, group: TaskGroup, kind: AskType, count: int) -> None:
        """Want `count` containers beyond those granted so far."""
        row = group.rows[kind]
        if row is None:
            if count == 0:
                return
            row = group.rows[kind] = AskRow(self._next, group, kind)
            self.rows[row.ask_id] = row
            self._next += 1
        if row.wanted != count:
            row.wanted = count
            if row.granted + count != row.told:
                self._dirty[row.ask_id] = row

    def granted(self, ask_id: int) -> AskRow | None:
        """Count a new container under its row; None for a row of before a resync."""
        row = self.rows.get(ask_id)
        if row is None:
            return None
        row.granted += 1
        row.surplus = row.wanted == 0
        if not row.surplus:
            row.wanted -= 1
        if row.granted + row.wanted != row.told:
            self._dirty[ask_id] = row
        return row

    def granted_run(self, row: AskRow, count: int) -> bool:
        """Count new containers under their row; False, and nothing is done, beyond what is wanted.

        The row's total stays as it was reported: what was wanted is granted.
        """
        if row.wanted < count:
            return False
        row.granted += count
        row.wanted -= count
        row.surplus = False
        if row.granted + row.wanted != row.told:
            self._dirty[row.ask_id] = row
        return True

    def touch(self, group: TaskGroup) -> None:
        """Tell the group's rows again: their estimate changed."""
        for row in group.rows:
            if row is not None and row.wanted:
                self._dirty[row.ask_id] = row

    def retire(self, group: TaskGroup) -> None:
        """Want nothing more for a group that another plan replaced."""
        for kind in AskType:
            self.want(group, kind, 0)

    def release(self, container: ContainerId) -> None:
        """Give a container back."""
        self._outbox.put(container, container)

    def blacklist(self, nodes: tuple[NodeId, ...]) -> None:
        """Tell the whole list of nodes not to use."""
        self._outbox.put(BLACKLIST, nodes)

    def received(self, response_id: int, acks: tuple[int, ...]) -> None:
        """Acknowledge a response, and forget the requests that it acknowledges."""
        if self._lossless:
            return
        self._acks.append(response_id)
        if acks:
            self._outbox.acknowledge(acks)

    def restart(self) -> None:
        """Ask for every row again under a new id, as a restarted manager knows none."""
        rows, self.rows = self.rows, {}
        self._dirty.clear()
        self._acks.clear()
        for old in rows.values():
            self._outbox.drop(old.ask_id)
            row = old.group.rows[old.kind] = AskRow(self._next, old.group, old.kind)
            row.wanted = old.wanted
            self._next += 1
            self.rows[row.ask_id] = row
            if row.wanted:
                self._dirty[row.ask_id] = row

    def message(
        self,
        attempt_id: int,
        now: float,
        duration_of: Callable[[int], float],
        progress: float,
        remaining_work: float,
        remaining_path_s: float,
    ) -> ContainersAsked:
        """Return the next request: changed asks, releases, acknowledgements; also the heartbeat."""
        if self._dirty:
            self._put_asks(duration_of)
        number, items = self._outbox.take(now)
        acks = tuple(self._acks)
        if acks:
            self._acks = []
        if not items:
            return ContainersAsked(
                attempt_id,
                number,
                acks,
                (),
                (),
                progress,
                remaining_work,
                None,
                remaining_path_s,
                self.epoch,
            )
        asks: list[Ask] = []
        releases: list[ContainerId] = []
        blacklist: tuple[NodeId, ...] | None = None
        for item in items:
            if isinstance(item, Ask):
                asks.append(item)
            elif isinstance(item, int):
                releases.append(item)
            else:
                blacklist = item
        return ContainersAsked(
            attempt_id,
            number,
            acks,
            tuple(asks),
            tuple(releases),
            progress,
            remaining_work,
            blacklist,
            remaining_path_s,
            self.epoch,
        )

    def _put_asks(self, duration_of: Callable[[int], float]) -> None:
        """Put the totals of all changed rows in the outbox."""
        self._whole_gangs()
        for row in self._dirty.values():
            group = row.group
            row.told = row.granted + row.wanted
            ask = Ask(
                row.ask_id,
                row.told,
                group.grant,
                duration_of(group.stage),
                group.pri_score,
                row.kind,
                group.stage,
                group.nodes,
                group.racks,
                group.label,
                group.gang,
            )
            self._outbox.put(row.ask_id, ask)
        self._dirty.clear()

    def _whole_gangs(self) -> None:
        """Mark all asks of a changed gang, so that the manager learns of it in one message."""
        stages = {row.group.stage for row in self._dirty.values() if row.group.gang}
        if not stages:
            return
        for ask_id, row in self.rows.items():
            if row.group.gang and row.group.stage in stages and (row.told or row.wanted):
                self._dirty[ask_id] = row

    def check(self) -> None:
        """Raise InvariantError unless rows and groups agree."""
        for ask_id, row in self.rows.items():
            if row.ask_id != ask_id or row.wanted < 0 or row.granted < 0:
                raise InvariantError(f"ask {ask_id} is broken")
            if row.granted + row.wanted != row.told and ask_id not in self._dirty:
                raise InvariantError(f"ask {ask_id} was not sent its total")
