"""Which nodes may hold an application's master, and how much masters may hold together.

As asks without a label go to nodes without one, so do masters, or to any where there is none. A
cluster whose nodes are all labelled (or too small without a label) has its masters on the labelled
ones.
"""

from rm.placing.feasible import NoRoomError, fits_empty
from rm.state.books import Books
from rm.state.records import Attempt
from weft.model.dag import Floats
from weft.model.resources import TOLERANCE, Vector

# These are the capacity and labels by which `Books.classes` counts nodes.
NodeClass = tuple[Vector, int]


def hosts(books: Books) -> list[NodeClass]:
    """Return the classes of nodes in service that masters go to."""
    room = [key for key in books.classes if fits_empty(books.master_demand, key[0])]
    return [key for key in room if not key[1]] or room


def nodes_alike(books: Books, attempt: Attempt) -> int:
    """Return how many nodes in service have labels that suit an attempt's master, of any size."""
    spec = attempt.app.job.master
    if spec is None or not spec.label:
        suit = {labels for _, labels in hosts(books)}
    else:
        bit = books.label_bit(spec.label)
        suit = {labels for _, labels in books.classes if labels & bit}
    return sum(count for (_, labels), count in books.classes.items() if labels in suit)


def check_master(books: Books) -> None:
    """Raise NoRoomError where no node in service could hold a master."""
    if books.classes and not hosts(books):
        mapping = books.types.mapping(books.master_vector)
        what = ", ".join(f"{amount:g} {name}" for name, amount in mapping.items() if amount)
        raise NoRoomError("job", f"no node could hold its master ({what})")


def full_of_masters(books: Books, attempt: Attempt) -> int:
    """Return the queue whose masters hold all they may (max_am_share), -1 if none; one may run."""
    tree = books.queues
    for at in tree.chains[attempt.app.queue]:
        share, held = float(tree.max_am_share[at]), books.master_usage[at]
        if share >= 1.0 or not held.any():
            continue
        if passes(held, attempt.demand, share * tree.capacity[at] * books.ledger.total):
            return at
    return -1


def masters_may_grow(books: Books, attempt: Attempt) -> bool:
    """Return whether masters together stay under their share; one may always run."""
    held, share = books.master_usage[0], books.settings.master_share_max
    return not held.any() or not passes(held, attempt.demand, share * books.ledger.total)


def passes(held: Floats, demand: Floats, most: Floats) -> bool:
    """Return whether one more demand (d,) passes a limit (d,) in anything that it demands."""
    return bool(((held + demand > most * (1 + TOLERANCE)) & (demand > 0)).any())
