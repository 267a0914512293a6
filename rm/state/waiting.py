"""The masters that wait for room, by what limits and nodes look at."""

import heapq
from collections.abc import Container, Iterator
from typing import TypeAlias

from rm.state.records import Attempt
from weft.model.errors import InvariantError
from weft.model.resources import Vector

# Leaf queue, user, demand and label: limits and the room of a node are the same for all members.
Group: TypeAlias = tuple[int, str, Vector, str]


class WaitingMasters:
    """Attempts in SCHEDULED, in the order in which they are to be placed.

    Thousands may wait for one limit: whoever looks for the next one to place asks once a group.
    """

    def __init__(self) -> None:
        self._group_of: dict[Attempt, Group] = {}
        # Of each member its place in the order.
        self._groups: dict[Group, dict[Attempt, int]] = {}
        self._placed = 0

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, attempt: object) -> bool:
        return attempt in self._group_of

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._group_of)

    def append(self, attempt: Attempt) -> None:
        """Add an attempt behind all others."""
        group = self._group_of[attempt] = _group(attempt)
        self._placed += 1
        self._groups.setdefault(group, {})[attempt] = self._placed

    def remove(self, attempt: Attempt) -> None:
        """Take an attempt out; raises KeyError where it does not wait."""
        group = self._group_of.pop(attempt)
        del self._groups[group][attempt]
        if not self._groups[group]:
            del self._groups[group]

    def queues_changed(self) -> None:
        """Look anew at which queues the attempts are in."""
        waiting = list(self._group_of)
        self._group_of, self._groups = {}, {}
        for attempt in waiting:
            self.append(attempt)

    def group(self, attempt: Attempt) -> Group:
        """Return the group of an attempt that waits."""
        return self._group_of[attempt]

    def check(self) -> None:
        """Raise InvariantError where an attempt is not in the group that it belongs to."""
        for attempt, group in self._group_of.items():
            if group != _group(attempt) or attempt not in self._groups[group]:
                raise InvariantError(f"attempt {attempt.attempt_id} waits in group {group}")

    def firsts(self) -> list[tuple[Group, Attempt]]:
        """Return every group with its first member."""
        return [(group, next(iter(members))) for group, members in self._groups.items()]

    def in_turn(self, without: Container[Group]) -> Iterator[tuple[Group, Attempt]]:
        """Yield attempts in order, but those of groups `without`, which may grow meanwhile."""
        heads: list[tuple[int, Attempt, Group, Iterator[tuple[Attempt, int]]]] = []
        for group, members in self._groups.items():
            if group not in without:
                rest = iter(members.items())
                attempt, place = next(rest)
                heads.append((place, attempt, group, rest))
        heapq.heapify(heads)
        while heads:
            _, attempt, group, rest = heads[0]
            if group not in without:
                yield group, attempt
            following = None if group in without else next(rest, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following[1], following[0], group, rest))


def _group(attempt: Attempt) -> Group:
    spec = attempt.app.job.master
    label = "" if spec is None else spec.label
    return attempt.app.queue, attempt.app.job.user, attempt.vector, label
