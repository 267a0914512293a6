"""The masters that wait for room, by what limits and nodes look at."""

import heapq
from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import Final, TypeAlias

from rm.state.records import Attempt
from weft.model.errors import InvariantError
from weft.model.resources import Vector

# Leaf queue, user, demand and label: limits and the room of a node are the same for all members.
Group: TypeAlias = tuple[int, str, Vector, str]
_STALE_MAX: Final = 64


class WaitingMasters:
    """Attempts in SCHEDULED, in the order in which they are to be placed.

    Thousands may wait for one limit: whoever looks for the next one to place asks once a group.
    """

    def __init__(self) -> None:
        self._group_of: OrderedDict[Attempt, Group] = OrderedDict()
        # Of each member its place in the order.
        self._groups: dict[Group, OrderedDict[Attempt, int]] = {}
        self._placed = 0
        # A heap of groups by the place of their first member, also of some that it was once.
        self._firsts: list[tuple[int, Group]] = []

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
        if group not in self._groups:
            self._groups[group] = OrderedDict()
            heapq.heappush(self._firsts, (self._placed, group))
        self._groups[group][attempt] = self._placed

    def remove(self, attempt: Attempt) -> None:
        """Take an attempt out; raises KeyError where it does not wait."""
        group = self._group_of.pop(attempt)
        members = self._groups[group]
        was_first = next(iter(members)) is attempt
        del members[attempt]
        if not members:
            del self._groups[group]
        elif was_first:
            heapq.heappush(self._firsts, (self._first_of(group), group))
        if len(self._firsts) > 2 * len(self._groups) + _STALE_MAX:
            self._firsts = [(self._first_of(one), one) for one in self._groups]
            heapq.heapify(self._firsts)
        while self._firsts and self._first_of(self._firsts[0][1]) != self._firsts[0][0]:
            heapq.heappop(self._firsts)

    def _first_of(self, group: Group) -> int:
        """Return the place of a group's first member, 0 where it has none any more."""
        return next(iter(self._groups.get(group, {}).values()), 0)

    def queues_changed(self) -> None:
        """Look anew at which queues the attempts are in."""
        waiting = list(self._group_of)
        self._group_of.clear()
        self._groups, self._firsts = {}, []
        for attempt in waiting:
            self.append(attempt)

    def in_turn(self, without: Container[Group]) -> Iterator[tuple[Group, Attempt]]:
        """Yield attempts in order, but those of groups `without`, which may grow meanwhile."""
        heads = self._firsts.copy()
        begun: dict[Group, Iterator[tuple[Attempt, int]]] = {}
        following: dict[Group, tuple[Attempt, int]] = {}
        while heads:
            place, group = heapq.heappop(heads)
            if group in without or group not in self._groups:
                continue
            if group not in begun:
                begun[group] = iter(self._groups[group].items())
                following[group] = next(begun[group])
            attempt, due = following[group]
            if due != place:
                # Another one is the first of its group by now.
                continue
            yield group, attempt
            later = next(begun[group], None)
            if later is not None:
                following[group] = later
                heapq.heappush(heads, (later[1], group))

    def check(self) -> None:
        """Raise InvariantError where an attempt is not in the group that it belongs to."""
        for attempt, group in self._group_of.items():
            if group != _group(attempt) or attempt not in self._groups[group]:
                raise InvariantError(f"attempt {attempt.attempt_id} waits in group {group}")
        if [one for _, one in self.in_turn(())] != list(self._group_of):
            raise InvariantError("masters do not wait in the order in which they came")


def _group(attempt: Attempt) -> Group:
    spec = attempt.app.job.master
    label = "" if spec is None else spec.label
    return attempt.app.queue, attempt.app.job.user, attempt.vector, label
