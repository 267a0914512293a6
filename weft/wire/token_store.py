"""The tokens that a process of masters was given: for its attempts, and for their containers."""

from collections.abc import Iterable

from weft.model.ids import AppId, AttemptId, ContainerId, app_of_attempt, app_of_container
from weft.wire import tokens
from weft.wire.tokens import Kind, Shown

TOKEN_CONTAINERS_MAX = 1_000_000


class Wallet:
    """Keeps what is given until its application has no master here."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptId, bytes] = {}
        self._containers: dict[AppId, dict[ContainerId, bytes]] = {}
        # These containers outlive their tasks.
        self._lasting: dict[AppId, set[ContainerId]] = {}

    def take(self, shown: Shown) -> None:
        """Keep tokens; what is none is left out."""
        for token in shown.tokens:
            kind, number, count = tokens.numbered(token)
            if kind == Kind.ATTEMPT:
                self._attempts[number] = token
            elif kind == Kind.CONTAINER:
                app = app_of_container(number)
                known = self._containers.get(app)
                if known is None:
                    known = self._containers[app] = {}
                if count == 1:
                    known[number] = token
                elif count <= TOKEN_CONTAINERS_MAX:
                    known.update(dict.fromkeys(range(number, number + count), token))

    def greeting(self) -> list[Shown]:
        """Return what a new stream to the manager begins with."""
        return [Shown(tuple(self._attempts.values()))] if self._attempts else []

    def attempt(self, attempt: AttemptId) -> list[Shown]:
        """Return what a stream that is up is told of a new master."""
        token = self._attempts.get(attempt)
        return [] if token is None else [Shown((token,))]

    def of(self, containers: Iterable[ContainerId]) -> list[bytes]:
        """Return the tokens of containers, of those that are known, each once."""
        # A run of containers has one token for all.
        found: dict[bytes, None] = {}
        for container in containers:
            token = self._containers.get(app_of_container(container), {}).get(container)
            if token is not None:
                found[token] = None
        return list(found)

    def lasts(self, container: ContainerId) -> None:
        """Note that a container is reusable: the end of a task in it is not its own."""
        self._lasting.setdefault(app_of_container(container), set()).add(container)

    def ended(self, first: ContainerId, count: int = 1) -> None:
        """Forget containers with consecutive ids in which tasks ended, but reusable ones."""
        app = app_of_container(first)
        known, lasting = self._containers.get(app, {}), self._lasting.get(app, ())
        for container in range(first, first + count):
            if container not in lasting:
                known.pop(container, None)

    def gone(self, attempt: AttemptId) -> None:
        """Forget a master that left this process."""
        self._attempts.pop(attempt, None)
        app = app_of_attempt(attempt)
        if not any(app_of_attempt(other) == app for other in self._attempts):
            self._containers.pop(app, None)
            self._lasting.pop(app, None)
