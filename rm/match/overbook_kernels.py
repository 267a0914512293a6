"""Overbook or wait: the what-if under the fluid model.

Source: Graphene section 5.1; docs/rules.md, rules 46 to 48.

When the demand on a divisible resource exceeds its capacity, all of its users run at
capacity / demand; a task runs at its lowest rate over resources; rates change at every completion.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.running_kernels import Running
from rm.match.filter_kernels import OPEN, fits, kept_off
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE
from weft.policies.compiled import inner_kernel, kernel, making_kernel

# Times that differ by less are equal; rounding comes to far less.
_TIME_TOLERANCE = 1e-6


class Fluid(NamedTuple):
    """Scratch of a run of the fluid model, of up to k tasks.

    `left`, `slow` and `alive` are (k,), `total` and `over` are (d,).
    """

    left: Floats
    slow: Floats
    alive: Ints
    total: Floats
    over: Floats


class Trial(NamedTuple):
    """Arrays for a what-if to write on, of up to k tasks: one more than run on a node.

    `left`, `before` and `after` are (k,), `demand` is (k, d), `free` (d,), `roomy` (nodes,);
    `barred` is that of `Room`.
    """

    fluid: Fluid
    left: Floats
    demand: Floats
    before: Floats
    after: Floats
    free: Floats
    roomy: Ints
    barred: Bools


@making_kernel
def fluid_ends(remaining: Floats, demand: Floats, capacity: Floats, count: int) -> Floats:
    """Return completion times, s from now, of the first `count` tasks, shape (count,).

    `remaining` (k,) is run time left on an uncontended node, s; `demand` (k, d); `capacity` (d,).
    """
    ends = np.zeros(count)
    _run(remaining, demand, capacity, _fluid(count, capacity.shape[0]), ends, ends, np.inf)
    return ends


@making_kernel
def _fluid(tasks: int, resources: int) -> Fluid:
    return Fluid(
        np.empty(tasks),
        np.empty(tasks),
        np.empty(tasks, np.int64),
        np.empty(resources),
        np.empty(resources),
    )


@kernel
def _run(
    remaining: Floats,
    demand: Floats,
    capacity: Floats,
    fluid: Fluid,
    ends: Floats,
    before: Floats,
    most: float,
) -> bool:
    """Fill `ends` (count,) as `fluid_ends` does; return False once that is known to be in vain.

    It is where tasks end later than `before` (the first so many) by more than `most` s in all.
    """
    count, left, alive, slow = ends.shape[0], fluid.left, fluid.alive, fluid.slow
    fluid.total[:] = 0.0
    for task in range(count):
        left[task], alive[task] = remaining[task], task
        for r in range(capacity.shape[0]):
            fluid.total[r] += demand[task, r]
    now, later, running = 0.0, 0.0, count
    while running > 0 and _contend(fluid, capacity):
        first, step = -1, np.inf
        for place in range(running):
            task = alive[place]
            slow[task] = _slowdown(demand[task], fluid.over)
            wait = left[task] * slow[task]
            if wait < step:
                first, step = task, wait
        now += step
        ends[first] = now
        if first < before.shape[0]:
            later += now - before[first]
            if later > most:
                return False
        kept = 0
        for place in range(running):
            task = alive[place]
            left[task] -= step / slow[task]
            alive[kept] = task
            kept += 1 if task != first else 0
        for r in range(capacity.shape[0]):
            fluid.total[r] -= demand[first, r]
        running -= 1
    return _run_free(fluid, running, now, ends, before, most - later)


@inner_kernel
def _run_free(
    fluid: Fluid, running: int, now: float, ends: Floats, before: Floats, most: float
) -> bool:
    """Go on with `_run` once nothing is contended, as what is demanded only becomes less."""
    left, alive, later = fluid.left, fluid.alive, 0.0
    count, first, step = running, -1, 0.0
    for _ in range(running):
        kept, then, least = 0, -1, np.inf
        for place in range(count):
            task = alive[place]
            if task == first:
                continue
            left[task] -= step
            alive[kept] = task
            kept += 1
            if left[task] < least:
                then, least = task, left[task]
        count, first, step = kept, then, least
        now += step
        ends[first] = now
        if first < before.shape[0]:
            later += now - before[first]
            if later > most:
                return False
    return True


@inner_kernel
def _contend(fluid: Fluid, capacity: Floats) -> bool:
    """Note by how much each resource is over its capacity; return whether any is."""
    any_is = False
    for r in range(capacity.shape[0]):
        fluid.over[r] = 1.0
        if fluid.total[r] > capacity[r] and capacity[r] > 0.0:
            fluid.over[r] = fluid.total[r] / capacity[r]
            any_is = True
    return any_is


@inner_kernel
def _slowdown(demand: Floats, over: Floats) -> float:
    """Return how much slower a task runs, by what is demanded of each resource, over (d,)."""
    slow = 1.0
    for r in range(over.shape[0]):
        if demand[r] > 0.0:
            slow = max(slow, over[r])
    return slow


class Waiting(NamedTuple):
    """Candidates that fit only with overbooking.

    `demand` is (k, d), the others (k,): `duration` in s; `wait`, when the next opportunity without
    overbooking comes, s from now; `label`, the bit of the label needed; `serial`.
    """

    demand: Floats
    duration: Floats
    wait: Floats
    label: Ints
    serial: Ints


class Room(NamedTuple):
    """All nodes.

    `available` and `capacity` are (nodes, d), `up`, `labels` and `reserved` (nodes,). `barred` (k,
    nodes) says where strict places and black lists keep candidates off; it has no length without
    any.
    """

    available: Floats
    capacity: Floats
    up: Bools
    labels: Ints
    reserved: Ints
    barred: Bools


@inner_kernel
def _may_use(waiting: Waiting, room: Room, i: int, node: int) -> bool:
    """Return whether nothing but its size keeps a candidate off a node."""
    barred = room.barred.shape[0] > 0 and room.barred[i, node]
    label, serial = waiting.label[i], waiting.serial[i]
    return kept_off(label, serial, room.labels[node], room.reserved[node], barred) == OPEN


@inner_kernel
def sooner(
    waiting: Waiting,
    running: Running,
    count: int,
    room: Room,
    node: int,
    now: float,
    trial: Trial,
) -> None:
    """Lower each candidate's `wait` to when it fits on one node without overbooking.

    `count` containers run there. A node that a candidate may not use is no opportunity for it.
    """
    available, capacity = room.available[node], room.capacity[node]
    wait, resources, at, most = waiting.wait, available.shape[0], trial.left, trial.demand
    free = trial.free
    for r in range(resources):
        free[r] = available[r]
    # A task may need so much, as `fits` has it, once so many containers ended.
    for step in range(count + 1):
        at[step] = 0.0 if step == 0 else max(0.0, running.ends[step - 1] - now)
        for r in range(resources):
            if step > 0:
                free[r] += running.held[step - 1, r]
            most[step, r] = max(free[r] + TOLERANCE * capacity[r], 0.0)
    for i in range(wait.shape[0]):
        for step in range(count + 1 if _may_use(waiting, room, i, node) else 0):
            if at[step] >= wait[i]:
                break
            if _within(waiting.demand[i], most[step]):
                wait[i] = at[step]
                break


@inner_kernel
def _within(demand: Floats, most: Floats) -> bool:
    for r in range(demand.shape[0]):  # noqa: SIM110 (a loop compiles to less)
        if demand[r] > most[r]:
            return False
    return True


@inner_kernel
def what_if(
    over: Floats,
    waiting: Waiting,
    running: Running,
    count: int,
    room: Room,
    node: int,
    now: float,
    trial: Trial,
) -> None:
    """Write oScore on a node into `over` (k,), one per candidate; 0: better to wait.

    `count` containers run there. Where a task fits on any node, nothing is gained.
    """
    demand, duration, wait = waiting.demand, waiting.duration, waiting.wait
    capacity, resources, roomy = room.capacity[node], demand.shape[1], -1
    many, left = trial.demand[: count + 1], trial.left[: count + 1]
    fluid, before, after = trial.fluid, trial.before[:count], trial.after[: count + 1]
    for task in range(count):
        left[task] = max(running.ends[task] - now, 0.0)
        for r in range(resources):
            many[task, r] = running.held[task, r]
    _run(left, many, capacity, fluid, before, before, np.inf)
    for i in range(demand.shape[0]):
        if not np.isfinite(wait[i]) or wait[i] <= 0.0:
            continue
        left[count] = duration[i]
        for r in range(resources):
            many[count, r] = demand[i, r]
        # No task ends sooner for one more, so where the cost is above the most that may be gained,
        # what is left of the run changes nothing.
        most = wait[i] + _TIME_TOLERANCE * (1.0 + wait[i] + duration[i])
        if not _run(left, many, capacity, fluid, after, before, most):
            continue
        cost = 0.0
        for task in range(count):
            cost += after[task] - before[task]
        score = max(0.0, wait[i] + duration[i] - after[count] - cost)
        if score <= 0.0:
            continue
        # There are many nodes to look at, so this is done only when it is needed.
        if roomy < 0:
            roomy = _find_roomy(demand, room, trial)
        if not _fits_somewhere(waiting, i, room, trial.roomy[:roomy]):
            over[i] = score


@inner_kernel
def _find_roomy(demand: Floats, room: Room, trial: Trial) -> int:
    """Fill `roomy` with the nodes on which the least of each resource demanded (k, d) fits.

    Return how many they are.
    """
    least, count = trial.free, 0
    least[:] = np.inf
    for i in range(demand.shape[0]):
        for r in range(demand.shape[1]):
            least[r] = min(least[r], demand[i, r])
    for node in range(room.up.shape[0]):
        if room.up[node] and fits(least, room.available[node], room.capacity[node]):
            trial.roomy[count] = node
            count += 1
    return count


@inner_kernel
def _fits_somewhere(waiting: Waiting, i: int, room: Room, nodes: Ints) -> bool:
    for node in nodes:
        free, capacity = room.available[node], room.capacity[node]
        if fits(waiting.demand[i], free, capacity) and _may_use(waiting, room, i, node):
            return True
    return False
