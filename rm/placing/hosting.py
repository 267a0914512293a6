"""Which nodes may hold an application's master: those without a label, or any where there is none.

As asks without a label go to nodes without one, so do masters. A cluster whose nodes are all
labelled (or too small without a label) has its masters on the labelled ones.
"""

from rm.placing.feasible import fits_empty
from rm.state.books import Books
from weft.errors import InputError
from weft.resources import Vector

NodeClass = tuple[Vector, int]  # capacity and labels, as `Books.classes` counts nodes


def hosts(books: Books) -> list[NodeClass]:
    """Return the classes of nodes in service that masters go to."""
    room = [key for key in books.classes if fits_empty(books.master_demand, key[0])]
    return [key for key in room if not key[1]] or room


def check_master(books: Books) -> None:
    """Raise InputError where no node in service could hold a master."""
    if books.classes and not hosts(books):
        mapping = books.types.mapping(books.master_vector)
        what = ", ".join(f"{amount:g} {name}" for name, amount in mapping.items() if amount)
        raise InputError("job", f"no node could hold its master ({what})")
