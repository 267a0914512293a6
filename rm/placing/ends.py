"""When what runs is expected to end, and what comes free on which node then."""

from math import inf
from typing import NamedTuple

from rm.state.books import Books
from weft.model.dag import Floats


class Release(NamedTuple):
    """Room `amount` (d,) that comes free on a node; `number` makes each one of its own."""

    at_s: float
    slot: int
    number: int
    amount: Floats


def releases(books: Books, soon_s: float) -> list[Release]:
    """Return when what runs gives its room back by the estimates, s of cluster time.

    What should have ended already does so at `soon_s`. A master ends with the last of its
    application's tasks; one of whose tasks none runs, at no time that is known (inf).
    """
    last_s: dict[int, float] = {}
    held = [holding for node in books.node_at for holding in node.holdings.once()]
    for holding in held:
        if holding.entry is not None:
            app = holding.entry.app
            last_s[app] = max(last_s.get(app, soon_s), holding.end_s)
    found: list[Release] = []
    for number, holding in enumerate(held):
        end_s = holding.end_s
        if holding.entry is None:
            attempt = holding.attempt
            end_s = inf if attempt is None else last_s.get(attempt.app.slot, inf)
        amount = holding.demand * holding.count
        found.append(Release(max(soon_s, end_s), holding.node.slot, number, amount))
    return found
