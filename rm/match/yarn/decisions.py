"""What the walk decides, and why it does not."""

from dataclasses import dataclass
from enum import Enum

from rm.match.yarn.amounts import Amount
from rm.match.yarn.books import Request, Reservation


class Kind(Enum):
    """What came of a look at a queue, an application or a request."""

    ALLOCATED = 1
    RESERVED = 2
    REQUEST_SKIPPED = 3
    APP_SKIPPED = 4
    QUEUE_SKIPPED = 5
    NO_PLACE = 6
    NOTHING = 7


HOST, RACK, ANYWHERE = range(3)


@dataclass(slots=True)
class Assignment:
    """One decision, or why there was none."""

    kind: Kind
    request: Request | None = None
    place: int = ANYWHERE
    unreserved: Reservation | None = None
    fulfilled: Reservation | None = None
    amount: Amount = None


NOTHING = Assignment(Kind.NOTHING)
SKIPPED = Assignment(Kind.APP_SKIPPED)
REQUEST_SKIPPED = Assignment(Kind.REQUEST_SKIPPED)
QUEUE_SKIPPED = Assignment(Kind.QUEUE_SKIPPED)
NO_PLACE = Assignment(Kind.NO_PLACE)


@dataclass(slots=True)
class Room:
    """What a queue may still hold, as it is passed down (ResourceLimits)."""

    limit: Amount
    headroom: Amount
    unreserve: Amount
    blocked: Amount


@dataclass(slots=True)
class Taken:
    """A container granted on the node, or (`reserved`) the node kept for a request.

    A reservation of another node that was given back for it is in `freed`.
    """

    request: Request
    place: int
    reserved: bool = False
    fulfilled: bool = False
    freed: Reservation | None = None
