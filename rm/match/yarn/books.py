"""What the walk knows: queues, users, applications, their requests, nodes; as YARN keeps it.

`used` counts what is reserved as well, as there. Amounts are those of `amounts`.
"""

from copy import deepcopy
from typing import Any

from rm.ledger.asks import AskEntry
from rm.match.yarn.amounts import Amount
from weft.protocol.messages import Ask

# This is the partition of nodes without a label.
NONE = ""
_OF_LEDGER = ("entry", "written")


class Partition:
    """The nodes with one label; those without are one as well."""

    __slots__ = ("at", "exclusive", "label", "total")

    def __init__(self, at: int, label: str, none: Amount, exclusive: bool) -> None:
        self.at = at
        self.label = label
        self.exclusive = exclusive
        self.total = none


class InPartition:
    """A queue in a partition.

    `used_share` is over what is guaranteed, `of_total` over the partition. `said` are the amounts
    that it is to be guaranteed and may hold at most (None: the queue above's); None: it has
    fractions instead. `first` is the same amount below 0 (memory, vcores): by it queues of equal
    use go, before their fractions.
    """

    __slots__ = (
        "absolute",
        "absolute_most",
        "am_limit",
        "am_used",
        "capacity",
        "capacity_most",
        "first",
        "guaranteed",
        "most",
        "of_total",
        "pending",
        "reserved",
        "said",
        "used",
        "used_share",
    )

    def __init__(self, none: Amount, capacity: float, most: float) -> None:
        # These are of the queue above, in single precision as all fractions here; the absolute ones
        # are of the cluster.
        self.capacity = capacity
        self.capacity_most = most
        self.absolute = self.absolute_most = 0.0
        self.said: tuple[Amount, Amount | None] | None = None
        self.first = (0.0, 0.0)
        self.guaranteed: Amount = none
        self.most: Amount = none
        self.used: Amount = none
        self.reserved: Amount = none
        self.pending: Amount = none
        self.am_used: Amount = none
        self.am_limit: Amount = none
        self.used_share = self.of_total = 0.0


class User:
    """A user in a leaf queue; `asking` are the slots of applications with something pending.

    He is `known` from his first application to the end of his last one that may run: as there, one
    that waits for others to end does not keep him known. Who is not gets nothing, and nothing more
    in that version of the leaf's limits (`barred_at`). `counted`: his use is that of an active
    user. `apps` refer to him, those that wait among them.
    """

    __slots__ = (
        "active_apps",
        "am_used",
        "apps",
        "asking",
        "barred_at",
        "counted",
        "known",
        "name",
        "pending_apps",
        "ratio",
        "used",
        "weight",
    )

    def __init__(self, name: str, weight: float, none: Amount, partitions: int) -> None:
        self.name = name
        self.weight = weight
        self.apps = 0
        self.barred_at = -1
        self.asking: set[int] = set()
        self.forget(none, partitions)

    def forget(self, none: Amount, partitions: int) -> None:
        """Forget all but what is asked for, as YARN does (removeUser, usersApplications)."""
        self.used: list[Amount] = [none] * partitions
        self.am_used: list[Amount] = [none] * partitions
        self.ratio = [0.0] * partitions
        self.active_apps = self.pending_apps = 0
        self.known = self.counted = False


class Reservation:
    """A node that is kept for a request; `made` numbers it among containers."""

    __slots__ = ("amount", "made", "node", "request")

    def __init__(self, node: "Machine", request: "Request", amount: Amount, made: int) -> None:
        self.made = made
        self.node = node
        self.request = request
        self.amount = amount


class Request:
    """Containers of one size that an application wants at one priority, and where.

    The smaller `key` goes first. `count` may be anywhere, `places` counts those on hosts and in
    racks (with a slash). `missed` and `missed_unlabelled` count opportunities. `reserved` is by
    node slot. `source` is the serial of the ask, or -1 for the master's own container; `written` is
    the ask as last looked at.
    """

    __slots__ = (
        "amount",
        "app",
        "count",
        "entry",
        "key",
        "missed",
        "missed_unlabelled",
        "partition",
        "places",
        "relax",
        "relax_racks",
        "reserved",
        "reserved_again",
        "source",
        "written",
    )

    def __init__(self, app: "Application", key: tuple[float, int], amount: Amount) -> None:
        self.app = app
        self.key = key
        self.amount = amount
        self.count = 0
        self.places: dict[str, int] = {}
        self.relax = self.relax_racks = True
        self.partition = NONE
        self.missed = self.missed_unlabelled = 0
        self.reserved: dict[int, Reservation] = {}
        self.reserved_again = 0
        self.source = -1
        self.entry: AskEntry | None = None
        self.written: Ask | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Request":
        """Copy all but the asks that it names: they are the ledger's, not of these books."""
        made: Request = Request.__new__(Request)
        memo[id(self)] = made
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(made, name, value if name in _OF_LEDGER else deepcopy(value, memo))
        return made


class Application:
    """An application; it takes part once its master may start (`active`), until it is `over`.

    `banned` are slots of nodes, `partitions` are those ever asked for, `requests` those with
    something pending, in order until the key of one changes (`rekeyed`). `made` numbers its
    containers in the order in which they were granted: one that was reserved before has the number
    of that time. `told` says whether its headroom was ever worked out.
    """

    __slots__ = (
        "active",
        "banned",
        "fulfilled",
        "leaf",
        "leaves",
        "made",
        "master",
        "master_partition",
        "number",
        "ordered_by",
        "over",
        "partitions",
        "pending",
        "priority",
        "rekeyed",
        "requests",
        "reserved",
        "slot",
        "told",
        "unordered",
        "used",
        "user",
        "wants_master",
    )

    def __init__(self, slot: int, leaf: "Leaf", user: User, none: Amount, partitions: int) -> None:
        self.slot = slot
        self.leaf = leaf
        self.user = user
        self.priority = 0
        self.number = 0
        # It `leaves` where it is over once a node was matched.
        self.active = self.leaves = self.over = False
        self.master: Amount = none
        self.master_partition = 0
        self.wants_master = False
        self.banned: set[int] = set()
        # A fair order goes by this, as it was when its containers last gave reason to look again.
        self.ordered_by = 0.0
        self.unordered = True
        self.rekeyed = False
        self.partitions: set[int] = set()
        self.told = False
        self.made: list[int] = []
        self.fulfilled: set[int] = set()
        self.requests: list[Request] = []
        self.pending: list[Amount] = [none] * partitions
        self.reserved: list[Amount] = [none] * partitions
        self.used: list[Amount] = [none] * partitions


class Queue:
    """A queue; leaves are `Leaf`.

    It admits `labels`, or all with None. It `respects` the priorities of the queues below or not.
    It `keeps` what it holds, and `keeps_inside` the queue: preemption takes nothing from it. So
    many applications run at once as `most_running` says, below 0: any number. It was `made` for a
    submission, and goes again.
    """

    __slots__ = (
        "by",
        "children",
        "keeps",
        "keeps_inside",
        "labels",
        "made",
        "most_running",
        "parent",
        "path",
        "priority",
        "respects",
        "slot",
    )

    def __init__(self, slot: int, path: str, parent: "Queue | None") -> None:
        self.slot = slot
        self.path = path
        self.parent = parent
        self.children: list[Queue] = []
        self.by: list[InPartition] = []
        self.labels: frozenset[str] | None = None
        self.made = False
        self.priority = 0
        self.respects = False
        self.keeps = self.keeps_inside = False
        self.most_running = -1
        if parent is not None:
            parent.children.append(self)


class Leaf(Queue):
    """A queue that takes applications.

    Those that are `waiting` wait until their masters may start. `factor` is -1 where there is none,
    `user_limit` is in percent. Applications are ordered as `fair` says: "", "fair" or "weighted".
    `version` is of what limits of users depend on; `only_pending` counts the users none of whose
    masters may start, as last counted.
    """

    __slots__ = (
        "active",
        "active_used",
        "active_weight",
        "am_share",
        "current_limit",
        "factor",
        "fair",
        "headroom_limit",
        "limits",
        "most_asked",
        "only_pending",
        "ratio",
        "user_limit",
        "users",
        "version",
        "waiting",
    )

    def __init__(self, slot: int, path: str, parent: Queue | None) -> None:
        super().__init__(slot, path, parent)
        self.active: list[Application] = []
        self.waiting: list[Application] = []
        self.users: dict[str, User] = {}
        self.factor = 1.0
        self.user_limit = 100.0
        self.am_share = 0.1
        self.fair = ""
        self.most_asked: Amount = 0
        self.active_used: list[Amount] = []
        self.active_weight = 0.0
        self.ratio: list[float] = []
        self.version = 0
        self.limits: dict[tuple[int, bool, bool], tuple[int, Amount]] = {}
        self.only_pending = 0
        self.current_limit: Amount = 0
        self.headroom_limit: Amount = 0


class Machine:
    """A node."""

    __slots__ = ("free", "name", "partition", "rack", "reservation", "slot", "total", "up")

    def __init__(self, slot: int, name: str, rack: str, none: Amount) -> None:
        self.slot = slot
        self.name = name
        self.rack = rack
        self.partition = 0
        self.total: Amount = none
        self.free: Amount = none
        self.up = False
        self.reservation: Reservation | None = None
