"""Fed replay: cores made again from a tape are fed what theirs handled and must decide the same.

Every core of a tape stands alone: its inputs are on the tape, from any sender. So a tape replays
without those of other processes, and a cluster is as many replays as it had processes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from am.making import MasterParts
from nm.making import NodeParts
from rm.making import ManagerParts
from weft.model.errors import WeftError
from weft.model.json_types import Json, Table
from weft.protocol.effects import Effect
from weft.protocol.messages import Address
from weft.tape.made import from_data
from weft.tape.rows import (
    DAMAGES,
    CoreAdded,
    CoreRemoved,
    Ended,
    Given,
    Handled,
    Placing,
    Row,
    check_of,
    placed_of,
)


class Core(Protocol):
    """What is fed."""

    def handle(self, event: Any, now: float, /) -> list[Effect]:
        """Handle an event; return what to do."""
        ...

    def check(self) -> None:
        """Raise where the books contradict themselves."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event that a core answers in another way than it did live.

    Times in s on the cluster's clock; `live` and `replayed` say what was decided, or by a sum that
    all orders of the answer were not the same.

    `number` is that of the event on the tape, from 1.
    """

    number: int
    now: float
    core: Address
    event: object
    live: str
    replayed: str


@dataclass(slots=True)
class Replay:
    """Feeds rows to cores, up to the first difference.

    `cores` are as they were at `now`; `on_answer` is notified of every event: (core, event, now,
    orders).

    With `checked`, every core checks its books after every event. `made` counts cores so far,
    `sums` the answers that were compared as a whole. `ended` says why the tape ends; it is empty
    where the tape was cut off, as by SIGKILL, or was not fed to its end (`stopped`).
    """

    checked: bool = False
    on_answer: Callable[[Address, object, float, list[Effect]], None] | None = None
    cores: dict[Address, Core] = field(default_factory=dict)
    made: int = 0
    events: int = 0
    placements: int = 0
    sums: int = 0
    now: float = 0.0
    ended: str = ""
    stopped: bool = False
    difference: Difference | None = None
    _given: dict[Address, Json] = field(default_factory=dict)

    def run(self, rows: Iterable[Row], until_s: float = float("inf")) -> "Replay":
        """Feed rows until they end, the first difference, or the first event after `until_s`.

        Raises WeftError for a core that no role can make.
        """
        for row in rows:
            if isinstance(row, Handled):
                self.stopped = row.now > until_s
                if self.stopped:
                    break
                self._feed(row)
                self.stopped = self.difference is not None
                if self.stopped:
                    break
            elif isinstance(row, Given):
                self._given.setdefault(row.address, {})[row.key] = row.value
            elif isinstance(row, CoreAdded):
                self.made += 1
                given = self._given[row.address] = {}
                try:
                    self.cores[row.address] = make_core(row.made, given)
                except DAMAGES as error:
                    what = f"{type(error).__name__}: {error}"
                    raise WeftError(f"no core can be made of what the tape says: {what}") from None
            elif isinstance(row, CoreRemoved):
                self.cores.pop(row.address, None)
                self._given.pop(row.address, None)
            elif isinstance(row, Ended):
                self.ended = row.reason
        return self

    def _feed(self, row: Handled) -> None:
        self.events += 1
        self.now = row.now
        core = self.cores.get(row.address)
        if core is None:
            raise WeftError(f"the tape has an event of a core that it does not make: {row.address}")
        try:
            orders = core.handle(row.event, row.now)
            if self.checked:
                core.check()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if said != row.failed:
                self._differ(row, row.failed or "no error", said)
            return
        if self.on_answer is not None:
            self.on_answer(row.address, row.event, row.now, orders)
        if row.failed:
            self._differ(row, row.failed, "no error")
            return
        placed = placed_of(orders)
        if placed != row.placed:
            at = next(
                i for i in range(len(placed) + 1) if placed[i : i + 1] != row.placed[i : i + 1]
            )
            self._differ(row, _say(row.placed, at), _say(placed, at))
            return
        self.placements += len(placed)
        if row.check is not None:
            self.sums += 1
            found = check_of(orders)
            if found != row.check:
                text = f"orders with the sum {found:08x}: {', '.join(map(_order, orders))}"
                self._differ(row, f"orders with the sum {row.check:08x}", text)

    def _differ(self, row: Handled, live: str, replayed: str) -> None:
        self.difference = Difference(self.events, row.now, row.address, row.event, live, replayed)


def make_core(made: Table, given: Table) -> Core:
    """Return a core made from what a tape says; raises WeftError for an unknown kind.

    `given` is the history that a master looks into; it fills while the tape is fed.
    """
    kind = made.get("kind")
    if kind == ManagerParts.__name__:
        return from_data(ManagerParts, made).make()
    if kind == NodeParts.__name__:
        return from_data(NodeParts, made).make()
    if kind == MasterParts.__name__:
        return from_data(MasterParts, made).make(given)
    raise WeftError(f"the tape has a core of an unknown kind: {kind!r}")


def _say(placed: tuple[Placing, ...], at: int) -> str:
    """Return the first placement that differs, by names that other commands print as well."""
    if at >= len(placed):
        return f"{at} placements and no more" if at else "no placement"
    container, node, ask, stage = placed[at]
    return f"placement {at + 1}: container {container} of ask {ask}, stage {stage}, on {node}"


def _order(order: Effect) -> str:
    text = repr(order)
    return text if len(text) <= 200 else text[:197] + "..."
