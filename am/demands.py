"""What tasks in reusable containers are estimated to need (COBRA section VI-B).

The first tasks of a group are over-estimated, to not slow each other down; then the most
that any of its tasks was measured to use counts.
"""

from collections.abc import Callable

from am.sizes import Machines, held_by_some
from am.task_groups import TaskGroup
from weft.model.resources import Vector

# "The first few executions" of COBRA, section VI-B.
MEASURED_MIN = 3


class Demands:
    """Beliefs by group. `over_estimate`: times what is declared; 0: as declared, never measured.

    `room` says for a label what a container holds and which machines there are: no over-estimate
    goes beyond that, nor does what was measured where no machine could hold it.
    """

    __slots__ = ("_believed", "_over", "_room", "_seen")

    def __init__(
        self, over_estimate: float, room: Callable[[str], tuple[Vector, Machines]]
    ) -> None:
        self._room = room
        self._over = over_estimate
        self._believed: dict[int, Vector] = {}
        # By group: how many tasks were measured, and the most that one used of each resource.
        self._seen: dict[int, tuple[int, Vector]] = {}

    def of(self, group: TaskGroup) -> Vector:
        """Return what one task of a group is estimated to need, absolute."""
        if self._over <= 0:
            return group.demand
        found = self._believed.get(group.number)
        if found is None:
            found = self._believed[group.number] = self._belief(group)
        return found

    def _belief(self, group: TaskGroup) -> Vector:
        """Return what follows from what was measured so far, or else the over-estimate."""
        count, seen = self._seen.get(group.number, (0, ()))
        room, machines = self._room(group.label)
        if count < MEASURED_MIN:
            pairs = zip(group.demand, room, strict=True)
            return tuple(max(d, min(d * self._over, most)) for d, most in pairs)
        found = tuple(m if m >= 0 else d for m, d in zip(seen, group.demand, strict=True))
        if held_by_some(found, machines):
            return found
        # No machine would hold such a container, so one would never come.
        rows = zip(found, group.demand, room, strict=True)
        return tuple(max(d, min(m, limit)) for m, d, limit in rows)

    def follow(self) -> None:
        """Estimate anew: there are other machines."""
        self._believed.clear()

    def measured(self, group: TaskGroup, use: Vector) -> None:
        """Learn from a task's measured use; a negative amount was not measured."""
        if self._over <= 0 or len(use) != len(group.demand):
            return
        count, before = self._seen.get(group.number, (0, (-1.0,) * len(use)))
        most = tuple(map(max, before, use))
        self._seen[group.number] = count + 1, most
        if count + 1 == MEASURED_MIN or (count >= MEASURED_MIN and most != before):
            self._believed[group.number] = self._belief(group)

    def too_little(self, group: TaskGroup) -> None:
        """Use the over-estimate again for a group of which a task ran out of memory."""
        self._believed.pop(group.number, None)
        self._seen.pop(group.number, None)
