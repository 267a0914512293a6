"""Waiting gangs by kind: what keeps one gang of a kind from starting keeps them all.

A gang is what one application asks for one stage that says `gang`. Those of a kind need the same,
may use the same nodes and are held to the same limits, so only their places in the line tell them
apart, and whether they fit is one question.
"""

from collections.abc import Hashable, Iterable
from heapq import heappop, heappush

from rm.ledger.asks import AskEntry
from weft.model.dag import Floats

# A gang is its application's slot and its stage.
GangKey = tuple[int, int]


class GangKind:
    """Gangs of one kind, which need `total` (d,) each.

    Kinds with equal `places` may use the same nodes; `rank` is the negative priority. `failed_at`
    is what was free when none of them fitted (`Ledger.freed`).
    """

    __slots__ = ("_alike", "_line", "amounts", "entries", "failed_at", "places", "rank", "total")

    def __init__(self, total: Floats, places: Hashable, rank: int) -> None:
        self.total = total
        # The same numbers: few are compared faster one by one.
        self.amounts: list[float] = total.tolist()
        self.places = places
        self.rank = rank
        self.entries: dict[GangKey, tuple[AskEntry, ...]] = {}
        self.failed_at = -1
        # How many containers of what size, where all of a gang are alike.
        self._alike: tuple[int, list[float]] | None = None
        # Each entry is the order of submission, the stage and the application's slot.
        self._line: list[tuple[int, int, int]] = []

    @property
    def first(self) -> GangKey:
        """The gang that stands first in the line."""
        while True:
            _, stage, app = self._line[0]
            if (app, stage) in self.entries:
                return app, stage
            heappop(self._line)

    @property
    def place(self) -> tuple[int, tuple[int, int, int]]:
        """The place in the line where the first of them stands; the smallest is served first."""
        assert self.first in self.entries
        return self.rank, self._line[0]

    def put(self, key: GangKey, entries: tuple[AskEntry, ...], order: int) -> None:
        """Add a gang; `order` is of its application's submission."""
        self.entries[key] = entries
        if len(entries) == 1:
            self._alike = entries[0].pending, entries[0].demand.tolist()
        heappush(self._line, (order, key[1], key[0]))

    def needs_no_less(self, other: "GangKind") -> bool:
        """Return whether a gang of this kind surely does not fit where none of another kind does.

        Only said of gangs of like containers.
        """
        if self.places != other.places:
            return False
        mine, its = self._alike, other._alike
        if mine is None or its is None or mine[0] < its[0]:
            return False
        return all(amount >= least for amount, least in zip(mine[1], its[1], strict=True))


class GangLine:
    """All waiting gangs; what of them changed is brought up to date by `put` and `drop`.

    `serials` has the number that each gang's reservation goes by: that of one of its asks.
    """

    __slots__ = ("_kind_of", "kinds", "serials")

    def __init__(self) -> None:
        self.kinds: dict[Hashable, GangKind] = {}
        self.serials: dict[GangKey, int] = {}
        self._kind_of: dict[GangKey, Hashable] = {}

    def drop(self, key: GangKey) -> None:
        """Forget a gang."""
        name = self._kind_of.pop(key, None)
        if name is None:
            return
        kind = self.kinds[name]
        del kind.entries[key]
        if not kind.entries:
            del self.kinds[name]

    def put(self, key: GangKey, name: Hashable, kind: GangKind, order: int) -> None:
        """Add a gang to a kind by its name; `kind` is a new one where there was none."""
        (entries,) = kind.entries.values()
        known = self.kinds.setdefault(name, kind)
        if known is not kind:
            known.put(key, entries, order)
        self._kind_of[key] = name

    def name(self, key: GangKey, serials: set[int]) -> None:
        """Give a gang the number of one of its asks: the one that it has, while that ask waits.

        An ask of it that waits again, as one of its tasks failed, changes nothing.
        """
        if self.serials.get(key) not in serials:
            self.serials[key] = min(serials)

    def kind_of(self, key: GangKey) -> GangKind:
        """Return the kind of a waiting gang."""
        return self.kinds[self._kind_of[key]]

    def all(self) -> Iterable[tuple[GangKey, tuple[AskEntry, ...]]]:
        """Yield every waiting gang with its asks, in no order."""
        for kind in self.kinds.values():
            yield from kind.entries.items()
