"""What people call things on the command line, made into what the Resource Manager knows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from weft.client.api import ENDED, Client
from weft.client.text import safe
from weft.model.errors import InputError
from weft.model.ids import AppId, cluster_of, format_app, is_app, parse_app
from weft.protocol.requests import ApplicationReport, QueueReport

LATEST = "-"
# A refusal names so many applications.
NAMED_MAX = 5
APP_STATES = ("NEW", "SUBMITTED", "ACCEPTED", "RUNNING", "FINISHED", "FAILED", "KILLED")
FINAL = ("SUCCEEDED", "FAILED", "KILLED")
NODE_STATES = (
    "NEW",
    "RUNNING",
    "UNHEALTHY",
    "DECOMMISSIONING",
    "DECOMMISSIONED",
    "LOST",
    "REBOOTED",
    "SHUTDOWN",
)


@dataclass(frozen=True, slots=True)
class StateFilter:
    """States to ask for, and which of the answers are wanted: final ones count as states."""

    asked: tuple[str, ...]
    named: frozenset[str]

    def holds(self, report: ApplicationReport) -> bool:
        """Return whether a report is wanted."""
        return not self.named or report.state in self.named or report.final_status in self.named

    @property
    def exact(self) -> bool:
        """Whether every answer is wanted."""
        return set(self.asked) == self.named


def check_address(text: str) -> None:
    """Raise InputError unless this is host:port, or several with commas between."""
    for place in text.split(","):
        host, _, port = place.strip().rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise InputError("--rm", f"expected host:port, got {place!r}")


def app_states(names: Iterable[str]) -> StateFilter:
    """Read states of applications, the final ones among them; raises InputError."""
    named = frozenset(name.upper() for name in names)
    known = dict.fromkeys((*APP_STATES, *FINAL))
    _known_states(named, known)
    asked = named & set(APP_STATES)
    if named & set(FINAL):
        # An application that failed is FINISHED as well, as in YARN.
        asked |= {"FINISHED"}
    return StateFilter(tuple(sorted(asked)), named)


def node_states(names: Iterable[str]) -> tuple[str, ...]:
    """Read states of nodes; raises InputError."""
    named = [name.upper() for name in names]
    _known_states(named, NODE_STATES)
    return tuple(named)


def _known_states(named: Iterable[str], known: Iterable[str]) -> None:
    states = tuple(known)
    for name in named:
        if name not in states:
            raise InputError("--state", f"unknown state {name!r}; known: {', '.join(states)}")


def known_queue(client: Client, name: str) -> None:
    """Raise InputError unless there is a queue of this name or path."""
    known: list[str] = []

    def walk(queue: QueueReport) -> None:
        known.append(queue.name)
        for child in queue.children:
            walk(child)

    walk(client.queues())
    if not any(name in (path, path.rpartition(".")[2]) for path in known):
        raise InputError("--queue", f"unknown queue {name!r}; known: {', '.join(known)}")


class Lists(Protocol):
    """A client that lists applications."""

    def applications(
        self, states: Iterable[str] = (), queue: str = "", user: str = "", limit: int = 0
    ) -> tuple[ApplicationReport, ...]:
        """Return reports of those that match, the newest last."""
        ...


def app_number(client: Lists, text: str) -> AppId:
    """Return an application by id or number.

    Raises InputError for what is neither, and for an id of another cluster: the number alone
    would name somebody else's application.
    """
    number, named = parse_app(text), cluster_of(text)
    newest = () if named is None else client.applications(limit=1)
    # A recording may lack it, which is 0.
    if newest and newest[-1].cluster_ts not in (0, named):
        own = newest[-1].cluster_ts
        raise InputError(
            "application id",
            f"{text!r} is of another cluster; ids of this one are application_{own}_<number>",
        )
    return number


def _is_meant_as_id(text: str) -> bool:
    """Return whether a text is an id or a number, or an id with a slip in it, which is no name."""
    return is_app(text) or text.startswith("application_")


def find_open(client: Lists, text: str) -> AppId:
    """Return an application by id, by number, or by its job's name if one of it has not ended.

    Raises InputError where several may be meant, or none: what is done to it cannot be undone.
    """
    if _is_meant_as_id(text):
        return app_number(client, text)
    if text == LATEST:
        raise InputError("APP", "- may be another one by now: name an id, a number or a job's name")
    named = [report for report in client.applications() if report.name == text]
    left = [report for report in named if report.state not in ENDED]
    if len(left) == 1:
        return left[0].app_id
    if left:
        ids = [format_app(report.cluster_ts, report.app_id) for report in left]
        more = f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
        raise InputError(
            "APP", f"{safe(text)!r} is the name of {', '.join(ids[:NAMED_MAX])}{more}: name an id"
        )
    if named:
        raise InputError("APP", f"every application named {safe(text)!r} had ended before")
    raise InputError(
        "APP", f"{safe(text)!r} is no id, number or name of a job (weft apps lists them)"
    )


def find_app(client: Lists, text: str) -> AppId:
    """Return an application by id, by number, or by its job's name (the newest).

    `-` is the newest of all. Raises InputError where there is none.
    """
    if _is_meant_as_id(text):
        return app_number(client, text)
    if text == LATEST:
        newest = client.applications(limit=1)
        if not newest:
            raise InputError("application", "there is none yet")
        return newest[-1].app_id
    named = [report for report in client.applications() if report.name == text]
    if not named:
        raise InputError(
            "application",
            f"{safe(text)!r} is no id (application_<timestamp>_<number>), number "
            "or job's name, and not -, the newest",
        )
    return named[-1].app_id
