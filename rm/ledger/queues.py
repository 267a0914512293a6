"""The tree of queues as arrays: guaranteed and maximal fractions of the whole cluster.

After YARN's Capacity Scheduler: `capacity` and `max_capacity` multiply down the tree; slot 0 is the
root and parents come before their children. Nobody is guaranteed more than he may hold.
"""

from collections.abc import Mapping

import numpy as np

from weft.model.dag import Floats, Ints
from weft.model.errors import InputError
from weft.model.queues import STOPPED, QueueSpec

# A refusal names so many queues.
_NAMED_MAX = 20


class QueueTree:
    """Queues by slot; all arrays have shape (queues,)."""

    __slots__ = (
        "_leaves",
        "_slots",
        "administer",
        "capacity",
        "chains",
        "children",
        "free",
        "is_leaf",
        "lifetime_s",
        "limited",
        "lone",
        "made",
        "max_allocation",
        "max_am_share",
        "max_applications",
        "max_capacity",
        "most",
        "names",
        "parent",
        "paths",
        "several",
        "specs",
        "stopped",
        "submit",
        "user_limit",
        "user_limit_factor",
    )

    def __init__(self, spec: QueueSpec) -> None:
        found = list(spec.walk())
        self.specs: tuple[tuple[str, QueueSpec], ...] = tuple(found)
        self.paths: tuple[str, ...] = tuple(path for path, _ in found)
        self.names: tuple[str, ...] = tuple(queue.name for _, queue in found)
        self._slots = slots = {path: slot for slot, path in enumerate(self.paths)}
        above = [slots.get(path.rpartition(".")[0], -1) for path in self.paths]
        self.parent: Ints = np.array(above, dtype=np.int64)
        self.capacity: Floats = np.array(
            [min(queue.capacity, queue.max_capacity) for _, queue in found]
        )
        self.max_capacity: Floats = np.array([queue.max_capacity for _, queue in found])
        for slot, parent in enumerate(above):
            if parent >= 0:
                self.capacity[slot] *= self.capacity[parent]
                self.max_capacity[slot] *= self.max_capacity[parent]
        self.user_limit: Floats = np.array([queue.user_limit for _, queue in found])
        self.user_limit_factor: Floats = np.array([queue.user_limit_factor for _, queue in found])
        self.max_applications: Ints = np.array([q.max_applications for _, q in found])
        self.max_am_share: Floats = np.array([queue.max_am_share for _, queue in found])
        self.submit: tuple[tuple[str, ...] | None, ...] = tuple(q.submit for _, q in found)
        self.administer: tuple[tuple[str, ...], ...] = tuple(q.administer for _, q in found)
        # An application has a default and a longest lifetime, s; 0 is none.
        self.lifetime_s: list[tuple[float, float]] = []
        for (_, queue), parent in zip(found, above, strict=True):
            upper = self.lifetime_s[parent] if parent >= 0 else (0.0, 0.0)
            both = [most for most in (queue.max_lifetime_s, upper[1]) if most]
            usual = queue.default_lifetime_s or upper[0]
            self.lifetime_s.append((usual, min(both, default=0.0)))
        # No container has more, by type.
        self.max_allocation: list[Mapping[str, float]] = []
        for (_, queue), parent in zip(found, above, strict=True):
            inherited = self.max_allocation[parent] if parent >= 0 else {}
            self.max_allocation.append({**inherited, **queue.max_allocation})
        self.is_leaf = np.array([queue.is_leaf for _, queue in found])
        # Where a queue may use the whole cluster only room limits it, which others will give back.
        self.most: Floats = np.where(self.max_capacity >= 1, np.inf, self.max_capacity)
        binding = np.isfinite(self.most) | np.isfinite(self.user_limit_factor)
        # It says whether any limit can bind.
        self.limited = bool((binding | (self.user_limit < 1)).any())
        self.several = int(self.is_leaf.sum()) > 1
        # It is free where there is neither a limit that binds nor another queue.
        self.free = not self.limited and not self.several
        # It is lone where one leaf queue has all that is guaranteed: nobody is owed what it gets.
        self.lone = not self.several and bool(self.capacity[-1] > 0.0)
        below: list[list[int]] = [[] for _ in above]
        for child, parent in enumerate(above):
            if parent >= 0:
                below[parent].append(child)
        self.children: tuple[tuple[int, ...], ...] = tuple(map(tuple, below))
        self.chains: tuple[tuple[int, ...], ...] = tuple(
            self._chain(slot) for slot in range(len(above))
        )
        # A queue is stopped where it or one above it is.
        self.stopped: tuple[bool, ...] = tuple(
            any(found[at][1].state == STOPPED for at in chain) for chain in self.chains
        )
        # Leaf queues below different ones may have one name.
        self._leaves: dict[str, list[int]] = {}
        # These were made at submissions, and go some time after they are empty.
        self.made: tuple[int, ...] = tuple(
            slot for slot, (_, queue) in enumerate(found) if queue.expires_s > 0
        )
        for slot, path in enumerate(self.paths):
            if self.is_leaf[slot]:
                below_root = path.partition(".")[2]
                for name in {self.names[slot], path, below_root or path}:
                    self._leaves.setdefault(name, []).append(slot)

    @property
    def root(self) -> QueueSpec:
        """The tree as it was said."""
        return self.specs[0][1]

    def __len__(self) -> int:
        return len(self.paths)

    def leaf(self, name: str, place: str = "queue") -> int:
        """Return the slot of a leaf queue named alone or by its path, with or without the root."""
        slots = self._leaves.get(name, ())
        if len(slots) == 1:
            return slots[0]
        if slots:
            paths = _listed([self.paths[slot] for slot in slots])
            raise InputError(place, f"queue {name!r} is one of {paths}: name its path")
        if name in self.paths or name in self.names:
            raise InputError(place, f"queue {name!r} has queues below it; jobs go to a leaf queue")
        known = _listed([self.names[slot] for slot in np.flatnonzero(self.is_leaf)])
        raise InputError(place, f"unknown queue {name!r}; known: {known}")

    def named(self, name: str) -> str:
        """Return the path of the one queue of a name, leaf or not; empty: none, or several."""
        found = [path for path, own in zip(self.paths, self.names, strict=True) if own == name]
        return found[0] if len(found) == 1 else ""

    def slot_of(self, path: str) -> int:
        """Return the slot of a queue, leaf or not, by its path; -1: there is none."""
        return self._slots.get(path, -1)

    def nearest(self, path: str) -> int:
        """Return the slot of a queue or, where it is gone, of the first one above it that is not.

        The root, where there is none.
        """
        while path and path not in self._slots:
            path = path.rpartition(".")[0]
        return self._slots.get(path, 0)

    def apart(self, one: int, other: int) -> tuple[list[int], list[int]]:
        """Return the queues of each of two ways that are not on the other, from the leaf up."""
        here, there = self.chains[one], self.chains[other]
        own = [at for at in here if at not in there]
        return own, [at for at in there if at not in here]

    def _chain(self, slot: int) -> tuple[int, ...]:
        chain = [slot]
        while self.parent[chain[-1]] >= 0:
            chain.append(int(self.parent[chain[-1]]))
        return tuple(chain)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
