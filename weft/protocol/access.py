"""Who may call what: one table, from which the services decide and the docs are written.

Every RPC of every service of a cluster has a row in `TABLE` with those who may call it. A caller is
known by the certificate that it shows (its roles) or by a token; who asks about an application
stands to it as its owner, as an administrator of its queue, or as another user. A cluster without
authentication knows only `TRUSTED`, who may do everything.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

# A certificate names roles as weft://ROLE/NAME; a host of emulated nodes has ANY_NODE as its name.
URI = "weft://"
ANY_NODE = "*"


class Role(StrEnum):
    """What a certificate says its holder is.

    RM is a Resource Manager, NODE the Node Manager of one node, AM a host of Application Masters,
    CLIENT a user and ADMIN an operator of the cluster. A GATEWAY (pages, REST, YARN's wire) speaks
    for users that it knows.
    """

    RM = "rm"
    NODE = "node"
    AM = "am"
    GATEWAY = "gateway"
    CLIENT = "client"
    ADMIN = "admin"


class Who(StrEnum):
    """How a caller stands to what it asks for: the columns of the table.

    ANONYMOUS shows nothing. An OWNER is the user whose application it is or is to be, OTHER any
    other user. A MASTER acts for its own attempt and a NODE for itself. EXPIRED is a certificate or
    token that has ended, FOREIGN one that another authority or key signed.
    """

    ANONYMOUS = "anonymous"
    OTHER = "other user"
    OWNER = "owner"
    QUEUE_ADMIN = "queue administrator"
    MASTER = "master"
    NODE = "node"
    GATEWAY = "gateway"
    ADMIN = "admin"
    EXPIRED = "expired"
    FOREIGN = "wrong authority"


class Caller(NamedTuple):
    """A client as the Resource Manager sees it. `everything`: no rule holds it."""

    user: str = ""
    everything: bool = False


TRUSTED: Final = Caller("", True)

_OPERATORS = frozenset({Who.GATEWAY, Who.ADMIN})
_OWNERS = _OPERATORS | {Who.OWNER, Who.QUEUE_ADMIN}
_USERS = _OWNERS | {Who.OTHER}
_MASTERS = frozenset({Who.MASTER, Who.GATEWAY})
# An application is submitted in the caller's own name to a queue where the caller may submit, and
# moved only to such a queue; queues are set by who administers the root; listings tell of the
# applications that the caller may see.
CLIENT_SERVICE = "/weft.ResourceManagerClient/"
TABLE: Mapping[str, frozenset[Who]] = {
    f"{CLIENT_SERVICE}NewApplication": _USERS,
    f"{CLIENT_SERVICE}SubmitApplication": _OWNERS,
    f"{CLIENT_SERVICE}FindSubmission": _USERS,
    f"{CLIENT_SERVICE}KillApplication": _OWNERS,
    f"{CLIENT_SERVICE}MoveApplication": _OWNERS,
    f"{CLIENT_SERVICE}SetPriority": _OWNERS,
    f"{CLIENT_SERVICE}SetExpiry": _OWNERS,
    f"{CLIENT_SERVICE}GetApplication": _OWNERS,
    f"{CLIENT_SERVICE}GetJob": _OWNERS,
    f"{CLIENT_SERVICE}ListApplications": _USERS,
    f"{CLIENT_SERVICE}ListNodes": _USERS,
    f"{CLIENT_SERVICE}DecommissionNode": _OPERATORS,
    f"{CLIENT_SERVICE}RecommissionNode": _OPERATORS,
    f"{CLIENT_SERVICE}UpdateNode": _OPERATORS,
    f"{CLIENT_SERVICE}ListQueues": _USERS,
    f"{CLIENT_SERVICE}SetQueues": _OPERATORS | {Who.QUEUE_ADMIN},
    f"{CLIENT_SERVICE}GetMetrics": _USERS,
    f"{CLIENT_SERVICE}GetManager": _USERS,
    f"{CLIENT_SERVICE}GetSettings": _OPERATORS,
    f"{CLIENT_SERVICE}GetQueues": _USERS,
    f"{CLIENT_SERVICE}Explain": _OWNERS,
    f"{CLIENT_SERVICE}ListContainers": _OWNERS,
    f"{CLIENT_SERVICE}WatchEvents": _OPERATORS,
    "/weft.NodeTracker/Track": frozenset({Who.NODE}),
    "/weft.ApplicationMasterProtocol/Allocate": _MASTERS,
    "/weft.MasterHost/HostMasters": frozenset({Who.NODE}),
    "/weft.ContainerManager/StartContainers": _MASTERS,
    "/weft.ContainerManager/StreamStarts": _MASTERS,
    "/weft.ContainerManager/StopContainers": _MASTERS,
    "/weft.ContainerManager/GetContainerStatuses": _MASTERS,
    "/weft.ContainerManager/FollowTasks": _MASTERS,
    "/weft.ContainerManager/ReadLog": _OWNERS,
}
ROLES: Mapping[Who, frozenset[Role]] = {
    Who.OTHER: frozenset({Role.CLIENT}),
    Who.OWNER: frozenset({Role.CLIENT}),
    Who.QUEUE_ADMIN: frozenset({Role.CLIENT}),
    Who.MASTER: frozenset({Role.AM}),
    Who.NODE: frozenset({Role.NODE}),
    Who.GATEWAY: frozenset({Role.GATEWAY}),
    Who.ADMIN: frozenset({Role.ADMIN}),
}


def roles_for(method: str) -> frozenset[Role]:
    """Return the roles of certificates that may call a method at all; none if it is unknown."""
    return frozenset(role for who in TABLE.get(method, ()) for role in ROLES.get(who, ()))


def may(request: str, who: Who) -> bool:
    """Return whether a client of such standing may make a request of this type."""
    return who in TABLE[f"{CLIENT_SERVICE}{request}"]


def role_of(uri: str) -> tuple[Role, str] | None:
    """Return role and name of a certificate's `weft://ROLE/NAME`; None for another name."""
    role, slash, name = uri.removeprefix(URI).partition("/")
    if not uri.startswith(URI) or not slash or not name or role not in set(Role):
        return None
    return Role(role), name


def markdown() -> str:
    """Return the table as the docs show it."""
    columns = list(Who)
    lines = [
        f"| call | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for method, row in TABLE.items():
        name = method.removeprefix("/weft.").replace("/", ".")
        cells = " | ".join("yes" if who in row else "" for who in columns)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)
