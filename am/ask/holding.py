"""What the askers of reusable containers share: filling containers, giving them back."""

from collections.abc import Iterable, Mapping, Sequence

from am.ask.pdelay import Spot, Waiting, assign, empty_after_packing, fits, next_threshold_s
from am.ask.view import ContainerView, GroupView, HoldView
from weft.model.resources import Vector


def parts(amounts: Sequence[float], size: Sequence[float]) -> tuple[float, ...]:
    """Return amounts as parts of a container; a resource that it lacks is never free."""
    return tuple(
        [(a / s if s > 0 else (0.0 if a <= 0 else 2.0)) for a, s in zip(amounts, size, strict=True)]
    )


def waiting_of(
    view: HoldView,
    size: Sequence[float],
    now: float,
    tau: float,
    unknown_wait_s: float,
    fixed: bool = False,
) -> list[Waiting]:
    """Return the waiting tasks in parts of one container size.

    While a duration is unknown the threshold is `unknown_wait_s` (docs/rules.md, rule 57).
    """
    return [
        Waiting(
            key=task.group.number,
            need=parts(task.demand, size),
            threshold_s=(
                unknown_wait_s if fixed or task.duration_s is None else tau * task.duration_s
            ),
            wait_s=now - task.since_s,
            nodes=task.group.nodes,
            racks=_racks_of(task.group, view.racks),
            tasks=len(task.group.ready),
        )
        for task in view.waiting
    ]


def _racks_of(group: GroupView, racks: Mapping[str, str]) -> tuple[str, ...]:
    """Return the preferred racks: those named, and those of the preferred nodes."""
    if not (racks and group.nodes):
        return group.racks
    near = (racks[node] for node in group.nodes if node in racks)
    return tuple(dict.fromkeys((*group.racks, *near)))


class Filling:
    """Fill containers one after another by Pdelay; `start` and `left` are the outcome."""

    __slots__ = (
        "_delta",
        "_fixed_wait",
        "_now",
        "_one_task_at_a_time",
        "_tau",
        "_unknown_wait_s",
        "left",
        "start",
        "used",
    )

    def __init__(
        self,
        now: float,
        tau: float,
        delta: float,
        unknown_wait_s: float,
        fixed: bool = False,
        single: bool = False,
    ) -> None:
        self._fixed_wait = fixed
        self._one_task_at_a_time = single
        self._now = now
        self._tau = tau
        self._delta = delta
        self._unknown_wait_s = unknown_wait_s
        self.start: list[tuple[int, int]] = []
        self.used: set[int] = set()
        self.left: list[Waiting] = []

    def fill(self, view: HoldView, containers: Iterable[ContainerView]) -> None:
        """Choose tasks for every container that has room."""
        left = {task.group.number: len(task.group.ready) for task in view.waiting}
        waits = sum(left.values())
        waiting_by_size: dict[Vector, list[Waiting]] = {}
        for container in containers:
            if self._one_task_at_a_time and container.busy:
                continue
            if not waits:
                break
            size = container.size
            tasks = waiting_by_size.get(size)
            if tasks is None:
                tasks = waiting_by_size[size] = _drop_missing(self._waiting(view, size), size)
            # Resources that a container lacks are left out: they would seem never to be free.
            free = tuple([f / s for f, s in zip(container.free, size, strict=True) if s > 0])
            tasks = [task for task in tasks if left[task.key] and fits(task.need, free)]
            if not tasks:
                continue
            spot = Spot(container.node, view.racks.get(container.node, ""), free)
            chosen, _ = assign(spot, tasks, left, self._delta, 1 if self._one_task_at_a_time else 0)
            waits -= len(chosen)
            for group, _level in chosen:
                self.start.append((container.container_id, group))
                self.used.add(container.container_id)
        if waits:
            rest = [task._replace(tasks=left[task.key]) for task in self._waiting(view, view.size)]
            self.left = [task for task in rest if task.tasks]

    def wakes_in_s(self) -> float | None:
        """Return when a task left may go further away from its input."""
        return next_threshold_s(self.left)

    def _waiting(self, view: HoldView, size: Sequence[float]) -> list[Waiting]:
        return waiting_of(view, size, self._now, self._tau, self._unknown_wait_s, self._fixed_wait)


def _drop_missing(tasks: Sequence[Waiting], size: Sequence[float]) -> list[Waiting]:
    """Return the tasks without resources that the container lacks; what needs them never fits."""
    kept = []
    for task in tasks:
        lacks = any(n > 0 and s <= 0 for n, s in zip(task.need, size, strict=True))
        if not lacks:
            need = tuple(n for n, s in zip(task.need, size, strict=True) if s > 0)
            kept.append(task._replace(need=need))
    return kept


def idle_containers(view: HoldView, used: set[int]) -> list[ContainerView]:
    """Return containers without a task, the longest idle first."""
    idle = [c for c in view.containers if not c.busy and c.container_id not in used]
    return sorted(idle, key=lambda c: (c.idle_since_s, c.container_id))


def useless(view: HoldView, idle: Sequence[ContainerView]) -> list[int]:
    """Return idle containers that are too small for every waiting task."""
    if not view.waiting:
        return []
    return [
        c.container_id for c in idle if not any(fits(task.demand, c.size) for task in view.waiting)
    ]


def surplus(view: HoldView, filling: Filling) -> list[int]:
    """Return idle containers that all waiting tasks together do not need (figure 2(c))."""
    rest = [c for c in view.containers if c.container_id not in filling.used]
    free = [parts(c.free, c.size) for c in rest]
    idle = [not c.busy for c in rest]
    return [rest[at].container_id for at in empty_after_packing(free, idle, filling.left)]
