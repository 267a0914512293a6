"""How many applications run at once: MaxRunningAppsEnforcer and CSMaxRunningAppsEnforcer."""

from collections.abc import Mapping, Sequence

from rm.match.yarn.books import Application, Queue

_ANY = 2**31 - 1


class Runners:
    """Which applications may run by their queues' and users' limits, and which wait.

    `most` are limits by queue slot, `user_most` is every user's, `users` have their own; below 0:
    any number.
    """

    def __init__(self, most: Sequence[int], user_most: int, users: Mapping[str, int]) -> None:
        self._most = [_ANY if one < 0 else one for one in most]
        self._user_most = user_most
        self._users = users
        # By queue slot, those of the queues below among them; and by user.
        self.running = [0] * len(most)
        self._running_of: dict[str, int] = {}
        self._waits: dict[int, list[Application]] = {}
        self._waits_of: dict[str, list[Application]] = {}

    def add(self, app: Application) -> bool:
        """Let an application run, or wait; return whether it runs."""
        if self._may(app):
            self.count(app, 1)
            return True
        self._waits.setdefault(app.leaf.slot, []).append(app)
        self._waits_of.setdefault(app.user.name, []).append(app)
        return False

    def waits(self, app: Application) -> bool:
        """Return whether an application waits for others to end."""
        return app in self._waits.get(app.leaf.slot, ())

    def remove(self, app: Application) -> list[Application]:
        """Forget an application; return those that run in its place, in order."""
        if self.waits(app):
            self._drop(app)
            return []
        self.count(app, -1)
        highest: Queue | None = None
        queue: Queue | None = app.leaf
        while queue is not None:
            if self.running[queue.slot] == self._most[queue.slot] - 1:
                highest = queue
            queue = queue.parent
        lists = [] if highest is None else self._waiting_below(highest)
        user = app.user.name
        if self._running_of[user] == self._most_of(user) - 1 and self._waits_of.get(user):
            lists.append(list(self._waits_of[user]))
        started: list[Application] = []
        candidates = {one.slot: one for some in lists for one in some}
        for one in sorted(candidates.values(), key=lambda one: one.number):
            if len(started) < len(lists) and self._may(one):
                self._drop(one)
                self.count(one, 1)
                started.append(one)
        return started

    def _most_of(self, user: str) -> int:
        most = self._users.get(user, self._user_most)
        return _ANY if most < 0 else most

    def _may(self, app: Application) -> bool:
        if self._running_of.get(app.user.name, 0) >= self._most_of(app.user.name):
            return False
        queue: Queue | None = app.leaf
        while queue is not None:
            if self.running[queue.slot] >= self._most[queue.slot]:
                return False
            queue = queue.parent
        return True

    def count(self, app: Application, sign: int) -> None:
        """Count an application as running, whatever the limits say; -1: no longer."""
        user = app.user.name
        self._running_of[user] = self._running_of.get(user, 0) + sign
        queue: Queue | None = app.leaf
        while queue is not None:
            self.running[queue.slot] += sign
            queue = queue.parent

    def _drop(self, app: Application) -> None:
        self._waits[app.leaf.slot].remove(app)
        self._waits_of[app.user.name].remove(app)

    def _waiting_below(self, queue: Queue) -> list[list[Application]]:
        if self.running[queue.slot] >= self._most[queue.slot]:
            return []
        if not queue.children:
            return [list(self._waits.get(queue.slot, ()))]
        return [some for below in queue.children for some in self._waiting_below(below)]
