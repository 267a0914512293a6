"""The tokens that a process of masters was given: for its attempts, and for their containers."""

from collections.abc import Iterable

from weft.ids import AppId, AttemptId, ContainerId, app_of_attempt, app_of_container
from weft.wire import tokens
from weft.wire.tokens import Kind, Shown


class Wallet:
    """Keeps what is given until its application has no master here."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptId, bytes] = {}
        self._containers: dict[AppId, dict[ContainerId, bytes]] = {}
        self._lasting: dict[AppId, set[ContainerId]] = {}  # containers that outlive their tasks

    def take(self, shown: Shown) -> None:
        """Keep tokens; what is none is left out."""
        for token in shown.tokens:
            kind, number = tokens.numbered(token)
            if kind == Kind.ATTEMPT:
                self._attempts[number] = token
            elif kind == Kind.CONTAINER:
                app = app_of_container(number)
                known = self._containers.get(app)
                if known is None:
                    known = self._containers[app] = {}
                known[number] = token

    def greeting(self) -> list[Shown]:
        """Return what a new stream to the manager begins with."""
        return [Shown(tuple(self._attempts.values()))] if self._attempts else []

    def attempt(self, attempt: AttemptId) -> list[Shown]:
        """Return what a stream that is up is told of a new master."""
        token = self._attempts.get(attempt)
        return [] if token is None else [Shown((token,))]

    def of(self, containers: Iterable[ContainerId]) -> list[bytes]:
        """Return the tokens of containers, of those that are known."""
        found = []
        for container in containers:
            token = self._containers.get(app_of_container(container), {}).get(container)
            if token is not None:
                found.append(token)
        return found

    def lasts(self, container: ContainerId) -> None:
        """Note that a container is reusable: the end of a task in it is not its own."""
        self._lasting.setdefault(app_of_container(container), set()).add(container)

    def ended(self, container: ContainerId) -> None:
        """Forget a container in which a task ended, unless it is reusable."""
        app = app_of_container(container)
        if container not in self._lasting.get(app, ()):
            self._containers.get(app, {}).pop(container, None)

    def gone(self, attempt: AttemptId) -> None:
        """Forget a master that left this process."""
        self._attempts.pop(attempt, None)
        app = app_of_attempt(attempt)
        if not any(app_of_attempt(other) == app for other in self._attempts):
            self._containers.pop(app, None)
            self._lasting.pop(app, None)
