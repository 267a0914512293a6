"""Growable struct of arrays: the owner writes, policies see read-only views of the same memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

Bools = np.ndarray[Any, np.dtype[np.bool_]]
# A name has a type and a width; 0 is one value a slot.
Spec = Mapping[str, tuple[DTypeLike, int]]


class Columns:
    """Arrays of one length: `table.w["name"]` to write, `table.name` (an attribute) to read."""

    def __init__(self, spec: Spec, room: int = 16, across: bool = False) -> None:
        self._spec = spec
        # Wide columns lie in memory number by number, not slot by slot.
        self._number_by_number = across
        self.room = 0
        self.w: dict[str, np.ndarray[Any, Any]] = {}
        self._resize(room)

    def grow_to(self, slots: int) -> None:
        """Make room for `slots` slots; new ones are zero. Arrays may move."""
        if slots > self.room:
            self._resize(max(slots, 2 * self.room))

    def begin_anew(self, slots: int) -> None:
        """Have so many slots, all of them zero. Arrays move."""
        self.room = 0
        self._resize(slots)

    def _resize(self, room: int) -> None:
        for name, (kind, width) in self._spec.items():
            if width and self._number_by_number:
                fresh = np.zeros((width, room), dtype=kind).T
            else:
                fresh = np.zeros((room, width) if width else room, dtype=kind)
            if self.room:
                fresh[: self.room] = self.w[name]
            self.w[name] = fresh
            shown = fresh.view()
            shown.flags.writeable = False
            setattr(self, name, shown)
        self.room = room
