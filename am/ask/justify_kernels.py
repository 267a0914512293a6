"""Compiled right-justification: every task of a schedule as late as it may start.

Tasks are taken by decreasing end and placed as late as their children and the pool allow. Those
placed before never use more of a task's old slot than the schedule did, so none starts earlier than
there and the schedule's end holds.
"""

import numpy as np

from am.ask.packing_kernels import TOLERANCE, Shape
from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel, making_kernel


@inner_kernel
def _deadline(shape: Shape, latest: Floats, earliest: Floats, task: int, horizon: float) -> float:
    """Return when a task must have ended: its first child's start; `earliest` is by stage."""
    links = shape.links
    stage = links.stage[task]
    deadline = horizon
    for at in range(links.after_at[stage], links.after_at[stage + 1]):
        deadline = min(deadline, earliest[links.after[at]])
    for at in range(links.child_at[task], links.child_at[task + 1]):
        if not np.isnan(latest[links.child[at]]):
            deadline = min(deadline, latest[links.child[at]])
    return deadline


@inner_kernel
def _cut(times: Floats, use: Floats, size: int, at: float) -> int:
    """Make `at` a breakpoint of the profile; return the new number of breakpoints."""
    place, high = 0, size
    while place < high:
        middle = (place + high) // 2
        if times[middle] < at - TOLERANCE:
            place = middle + 1
        else:
            high = middle
    if place < size and abs(times[place] - at) <= TOLERANCE:
        return size
    for k in range(size, place, -1):
        times[k] = times[k - 1]
        for r in range(use.shape[1]):
            use[k, r] = use[k - 1, r]
    times[place] = at
    for r in range(use.shape[1]):
        # The new place splits the interval before it.
        use[place, r] = use[place - 1, r]
    return size + 1


@inner_kernel
def _add(times: Floats, use: Floats, size: int, need: Floats, begin: float, end: float) -> int:
    """Use a demand during [begin, end)."""
    if end - begin <= TOLERANCE:
        return size
    size = _cut(times, use, size, begin)
    size = _cut(times, use, size, end)
    for k in range(size):
        if times[k] >= end - TOLERANCE:
            break
        if times[k] >= begin - TOLERANCE:
            for r in range(len(need)):
                use[k, r] += need[r]
    return size


@inner_kernel
def _latest(
    times: Floats, use: Floats, size: int, need: Floats, room: Floats, length: float, end: float
) -> float:
    """Return the latest start at which a demand has room for its whole length; -1 for none."""
    k = size - 1
    while k > 0 and times[k] >= end - TOLERANCE:
        k -= 1
    while True:
        fits = True
        for r in range(len(need)):
            if use[k, r] + need[r] > room[r]:
                fits = False
                break
        if not fits:
            end = times[k]
        elif times[k] <= end - length + TOLERANCE:
            return end - length
        if k == 0:
            return -1.0
        k -= 1


@making_kernel
def justify(
    shape: Shape,
    duration: Floats,
    order: Ints,
    running: Ints,
    residual: Floats,
    capacity: Floats,
    horizon: float,
) -> Floats:
    """Return the latest starts, shape (n,); nan where not in `order`, -1 where there is no room."""
    n, d = len(duration), len(capacity)
    latest = np.full(n, np.nan)
    earliest = np.full(len(shape.links.first) - 1, np.inf)
    most = 2 * (len(order) + len(running)) + 4
    times, use = np.zeros(most), np.zeros((most, d))
    times[1] = horizon
    size = 2
    for at in range(len(running)):
        task = running[at]
        size = _add(times, use, size, shape.need[shape.kind[task]], 0.0, residual[at])
    room = capacity * (1.0 + TOLERANCE)
    for task in order:
        need, length = shape.need[shape.kind[task]], duration[task]
        end = _deadline(shape, latest, earliest, task, horizon)
        start = _latest(times, use, size, need, room, length, end) if length > TOLERANCE else end
        latest[task] = start
        stage = shape.links.stage[task]
        earliest[stage] = min(earliest[stage], start)
        if start >= 0.0:
            size = _add(times, use, size, need, start, start + length)
    return latest
