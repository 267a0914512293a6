"""Single tasks on the planners' board, for tests: the very kernels that the search runs."""

from typing import Any

import numpy as np

from am.plan import board_kernels as kernels
from am.plan import run_kernels as runs
from am.plan.board import space_of
from am.plan.board_kernels import FAR
from am.plan.part import Grid
from weft.model.dag import Ints, Machines


class Board:
    """A space to place single tasks on, with marks to come back to (at most 6 open at once)."""

    def __init__(self, machines: Machines, grid: Grid, breakpoints: int = 256) -> None:
        self.space = space_of(grid.room(machines.capacity), breakpoints)
        self._marks = 0

    @property
    def span(self) -> tuple[int, int]:
        """The earliest start and the latest end of what is placed, ticks; (0, 0) when empty."""
        return int(self.space.state[kernels.BEGIN]), int(self.space.state[kernels.END])

    def fit(self, key: int, length: int, demand: Ints, *, backward: bool = False) -> int | None:
        """Return the earliest start >= key on any machine, or None; backward the latest end <= key.

        `length` > 0 in ticks, `demand` (d,) units.
        """
        sign = -1 if backward else 1
        runs.open_run(self.space, sign * key, demand)
        found = runs.next_fit(self.space, sign, sign * key, length, demand)
        return None if found == FAR else sign * found

    def place(
        self, key: int, length: int, demand: Ints, tasks: int = 1, *, backward: bool = False
    ) -> list[tuple[int, int]]:
        """Place equal tasks at their fits, one after the other: (start, machine) of each.

        Ties go to the lower machine. Raises ValueError where a task fits on no machine.
        """
        self._reserve_pool(4 * tasks * (int(self.space.table[kernels.LENGTH].max()) + 4))
        if self.fit(key, length, demand, backward=backward) is None:
            raise ValueError("the task fits on no machine")
        sign = -1 if backward else 1
        runs.open_run(self.space, sign * key, demand)
        spots = np.zeros(3, np.int64)
        done: list[tuple[int, int]] = []
        while len(done) < tasks:
            left = tasks - len(done)
            count = runs.place_batch(self.space, sign, sign * key, length, demand, left, spots)
            start, lowest, each = (int(x) for x in spots)
            done += [(start, lowest + i // each) for i in range(count)]
        return done

    def mark(self) -> int:
        """Remember the board; a number for `undo`."""
        kernels.mark(self.space, self._marks)
        self._marks += 1
        return self._marks - 1

    def undo(self, mark: int) -> None:
        """Go back to a mark, exactly; the marks after it are gone."""
        kernels.undo(self.space, mark)
        self._marks = mark + 1

    def profile(self, machine: int) -> list[tuple[int, tuple[int, ...]]]:
        """Return what is free on a machine: (from this tick on, units), ascending."""
        table: Any = self.space.table
        for s in range(int(self.space.state[kernels.SEGMENTS])):
            if table[kernels.LO, s] <= machine < table[kernels.LO, s] + table[kernels.COUNT, s]:
                low = int(table[kernels.OFFSET, s])
                rows = range(low, low + int(table[kernels.LENGTH, s]))
                return [
                    (int(self.space.times[i]), tuple(self.space.free[i].tolist())) for i in rows
                ]
        raise IndexError(machine)

    def _reserve_pool(self, more: int) -> None:
        """Keep the blocks and make the pool longer where `more` breakpoints might not fit."""
        top, size = int(self.space.state[kernels.TOP]), len(self.space.times)
        if top + more <= size:
            return
        self.space = self.space._replace(
            times=np.concatenate([self.space.times, np.zeros(size + more, np.int64)]),
            free=np.concatenate(
                [self.space.free, np.zeros((size + more, self.space.free.shape[1]), np.int64)]
            ),
        )
