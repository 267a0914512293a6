"""Emulated tasks contend as on a real host: the fluid model (docs/rules.md, rule 46).

When the true demands on a divisible resource sum to more than the node has, everybody who uses it
runs at `capacity / demand`; a task runs at its lowest rate over resources. Rates change at every
start and end. A rigid resource cannot be shared out: the task that would exceed it is killed.

While nothing is over capacity every rate is 1, so a start costs a sum per resource and an end a
pop from a heap. Rates are worked out again only when a total crosses or leaves its capacity.
"""

from heapq import heapify, heappop, heappush
from math import inf

from weft.model.errors import InvariantError
from weft.model.resources import Vector
from weft.protocol.messages import TaskLaunch, launches_of
from weft.protocol.record import slotted

# Relative: sums of floats must not count as contention.
SLACK = 1e-9


@slotted
class RunningTask:
    """One running task; it has done `work_s - (end_s - now) * rate` of its work.

    Or `count` identical ones that began together, as long as they run at full rate
    (`Emulation.start_run`).

    `end_s` holds at the present rate; `serial` is that of its entry in the heap, -1 once it ended;
    `parts` are those of a run that was taken apart.
    """

    item: TaskLaunch
    demand: Vector
    work_s: float
    start_s: float
    end_s: float
    serial: int
    count: int = 1
    parts: tuple["RunningTask", ...] = ()
    rate: float = 1.0

    def done_s(self, now: float) -> float:
        """Return the work done by `now`, in s at full rate."""
        if self.serial < 0:
            return self.work_s
        return min(self.work_s, max(0.0, self.work_s - (self.end_s - now) * self.rate))


def real_task(item: TaskLaunch, now: float) -> RunningTask:
    """Return a real task that began, of which nothing is emulated."""
    return RunningTask(item, item.demand, item.duration_s, now, now + item.duration_s, 0)


class Emulation:
    """The tasks that run on one emulated host, and when the next one ends."""

    __slots__ = (
        "_alone",
        "_alone_totals",
        "_alone_use",
        "_contended",
        "_entries_with_many",
        "_heap",
        "_idle_use",
        "_limits",
        "_rigid",
        "_running_by_serial",
        "_serial",
        "_speed",
        "_totals",
        "capacity",
        "next_end_s",
        "used",
    )

    def __init__(self, capacity: Vector, rigid: tuple[bool, ...], speed: float = 1.0) -> None:
        self.capacity = capacity
        self._rigid = rigid
        self._limits = [amount * (1 + SLACK) for amount in capacity]
        self._totals = [0.0] * len(capacity)
        self._heap: list[tuple[float, int, RunningTask]] = []
        # By serial, which is the order of starts.
        self._running_by_serial: dict[int, RunningTask] = {}
        self._serial = 0
        self._entries_with_many = 0
        self._speed = speed
        self._contended = False
        # the newest demand that ran alone within the limits, and what it sums up to and uses then
        self._alone: Vector | None = None
        self._alone_totals: list[float] = []
        self._alone_use: Vector = ()
        self._idle_use: Vector = (0.0,) * len(capacity)
        # What `use` returns, if it was called since a sum or a rate changed.
        self.used: Vector = ()
        # when the next task ends at the present rates; infinite when nothing runs
        self.next_end_s = inf

    def __len__(self) -> int:
        return sum(work.count for work in self._running_by_serial.values())

    @property
    def totals(self) -> Vector:
        """The sum of the running tasks' true demands, which may exceed the capacity."""
        return tuple(self._totals)

    @property
    def use(self) -> Vector:
        """Amounts in use now: never more than the capacity."""
        if not self.used:
            self.used = self._work_out_use()
        return self.used

    def _work_out_use(self) -> Vector:
        if not self._contended:
            # Every report asks, so there is no call for each resource.
            totals, capacity = self._totals, self.capacity
            for r, total in enumerate(totals):
                if total > capacity[r]:
                    return tuple(map(min, totals, capacity))
            return tuple(totals)
        use = [0.0] * len(self.capacity)
        for work in self._running_by_serial.values():
            for r, amount in enumerate(work.demand):
                use[r] += amount if self._rigid[r] else amount * work.rate
        return tuple(map(min, use, self.capacity))

    def start(
        self, item: TaskLaunch, demand: Vector, work_s: float, now: float
    ) -> RunningTask | None:
        """Run a task; None where it was killed because a rigid resource would be exceeded.

        A resource of which the host has nothing counts as rigid: the task would never end.
        Every task that was due by `now` must have been taken (`due`) before.
        """
        if not self._running_by_serial and (demand == self._alone or self._fits_alone(demand)):
            self._totals = self._alone_totals.copy()
            self.used = self._alone_use
            serial, end_s = self._serial + 1, now + work_s
            self._serial, self.next_end_s = serial, end_s
            work = self._running_by_serial[serial] = RunningTask(
                item, demand, work_s, now, end_s, serial
            )
            self._heap.append((end_s, serial, work))
            return work
        totals, limits = self._totals, self._limits
        self.used = ()
        over = False
        for r, amount in enumerate(demand):
            if amount:
                total = totals[r] = totals[r] + amount
                if total > limits[r]:
                    over = True
        if over:
            for r, amount in enumerate(demand):
                if amount and totals[r] > limits[r] and (self._rigid[r] or limits[r] == 0):
                    self._sum_up()
                    return None
        serial, end_s = self._serial + 1, now + work_s
        self._serial = serial
        work = self._running_by_serial[serial] = RunningTask(
            item, demand, work_s, now, end_s, serial
        )
        if over or self._contended or self._speed != 1.0:
            self._rate(now)
            return work
        heappush(self._heap, (end_s, serial, work))
        self.next_end_s = min(self.next_end_s, end_s)
        return work

    def _fits_alone(self, demand: Vector) -> bool:
        """Return whether a demand is within all limits where nothing else runs; keep its sums."""
        totals = [0.0 + amount if amount else 0.0 for amount in demand]
        if self._speed != 1.0 or any(
            amount > most for amount, most in zip(totals, self._limits, strict=True)
        ):
            return False
        self._alone, self._alone_totals = demand, totals
        self._alone_use = tuple(map(min, totals, self.capacity))
        return True

    def start_run(
        self, item: TaskLaunch, demand: Vector, work_s: float, now: float
    ) -> RunningTask | None:
        """Start every task of a run; None, and nothing is changed, where one would not run alone.

        Float sums are taken one by one, and every task has its serial, so that the outcome is the
        very same as that of one start after the other.
        """
        if self._contended or self._speed != 1.0:
            return None
        count, totals, limits = len(item.tasks), self._totals.copy(), self._limits
        for r, amount in enumerate(demand):
            if amount:
                total = totals[r]
                for _ in range(count):
                    total += amount
                if total > limits[r]:
                    return None
                totals[r] = total
        self._totals = totals
        self.used = ()
        serial = self._serial + 1
        self._serial += count
        work = RunningTask(item, demand, work_s, now, now + work_s, serial, count)
        self._running_by_serial[serial] = work
        self._entries_with_many += 1
        heappush(self._heap, (work.end_s, serial, work))
        self.next_end_s = min(self.next_end_s, work.end_s)
        return work

    def _look_ahead(self) -> None:
        """Find the next end; entries of what ended before its time are dropped."""
        heap = self._heap
        while heap:
            end_s, serial, work = heap[0]
            if work.serial == serial:
                self.next_end_s = end_s
                return
            heappop(heap)
        self.next_end_s = inf

    def take_apart(self) -> None:
        """Make every task of a run an entry of its own: something is to happen to one of them."""
        if not self._entries_with_many:
            return
        running: dict[int, RunningTask] = {}
        for work in self._running_by_serial.values():
            if work.count == 1:
                running[work.serial] = work
                continue
            parts = [
                RunningTask(
                    item,
                    work.demand,
                    work.work_s,
                    work.start_s,
                    work.start_s + work.work_s,
                    work.serial + place,
                )
                for place, item in enumerate(launches_of(work.item))
            ]
            running.update((part.serial, part) for part in parts)
            work.parts, work.serial = tuple(parts), -1
        self._running_by_serial = running
        self._heap = [(work.end_s, work.serial, work) for work in running.values()]
        heapify(self._heap)
        self._entries_with_many = 0

    def stop(self, work: RunningTask, now: float) -> None:
        """End a task before its time."""
        self._remove(work)
        if self._contended:
            self._rate(now)
        else:
            self._look_ahead()

    def due(self, now: float) -> list[tuple[RunningTask, float]]:
        """Take the tasks that ended by `now`, each with the time at which it ended.

        Every end changes the others' rates at its own time, even where `now` is later.
        """
        ended: list[tuple[RunningTask, float]] = []
        # A timer's rounding must not cost another timer.
        until = now + SLACK + abs(now) * 1e-12
        running = self._running_by_serial
        if len(running) == 1 and not self._contended and self.next_end_s <= until:
            end_s, serial, work = self._heap[0]
            del running[serial]
            self._heap.clear()
            work.serial, self._entries_with_many, self.next_end_s = -1, 0, inf
            self._totals, self.used = list(self._idle_use), self._idle_use
            return [(work, end_s if end_s < now else now)]
        while self.next_end_s <= until:
            end_s, _, work = heappop(self._heap)
            end_s = min(end_s, now)
            ended.append((work, end_s))
            self._remove(work)
            if self._contended:
                self._rate(end_s)
            elif self._running_by_serial:
                self._look_ahead()
            else:
                # What was stopped before its time may have left entries.
                self._heap.clear()
                self.next_end_s = inf
        return ended

    def slow(self, speed: float, now: float) -> None:
        """Run everything at `speed` times its rate from now on."""
        self._speed, self._alone = speed, None
        self._rate(now)

    def check(self) -> None:
        """Raise InvariantError where sums, rates and the heap contradict the running tasks."""
        live = {serial for _, serial, work in self._heap if work.serial == serial}
        if live != {work.serial for work in self._running_by_serial.values()}:
            raise InvariantError("emulation: the heap and the running tasks differ")
        if self.next_end_s != min(
            (work.end_s for work in self._running_by_serial.values()), default=inf
        ):
            raise InvariantError(f"emulation: nothing ends next at {self.next_end_s}")
        for r, total in enumerate(self._totals):
            exact = sum(work.demand[r] * work.count for work in self._running_by_serial.values())
            if abs(exact - total) > 1e-6 * max(1.0, exact):
                raise InvariantError(f"emulation: resource {r} sums to {exact}, not {total}")
            if self._rigid[r] and exact > self.capacity[r] * (1 + 1e-6):
                raise InvariantError(f"emulation: rigid resource {r} is over capacity")
        for work in self._running_by_serial.values():
            if work.count > 1 and (self._contended or self._speed != 1.0):
                raise InvariantError("emulation: a run of tasks shares what is scarce")
            if work.rate > self._speed * (1 + SLACK):
                raise InvariantError(f"emulation: a task runs at {work.rate} of its pace")

    def _remove(self, work: RunningTask) -> None:
        del self._running_by_serial[work.serial]
        work.serial = -1
        count = work.count
        if count > 1:
            self._entries_with_many -= 1
        # Without running tasks what rounding left over is forgotten.
        if not self._running_by_serial:
            self._totals = list(self._idle_use)
            self.used = self._idle_use
            return
        self.used = ()
        totals = self._totals
        if count == 1:
            for r, amount in enumerate(work.demand):
                totals[r] -= amount
            return
        for r, amount in enumerate(work.demand):
            if amount:
                total = totals[r]
                for _ in range(count):
                    total -= amount
                totals[r] = total

    def _sum_up(self) -> None:
        """Sum the demands afresh, so that rounding never accumulates."""
        demands = [
            work.demand for work in self._running_by_serial.values() for _ in range(work.count)
        ]
        sums = [sum(column) for column in zip(*demands, strict=True)]
        self._totals = sums or [0.0] * len(self.capacity)

    def _rate(self, now: float) -> None:
        """Work out every task's rate at `now`; tasks whose rate stays keep their exact end."""
        self.take_apart()
        self._sum_up()
        self.used = ()
        factors = [
            1.0 if rigid or total <= limit else capacity / total
            for total, limit, capacity, rigid in zip(
                self._totals, self._limits, self.capacity, self._rigid, strict=True
            )
        ]
        self._contended = min(factors, default=1.0) < 1.0
        narrow = [r for r, factor in enumerate(factors) if factor < 1.0]
        heap = []
        for work in self._running_by_serial.values():
            demand = work.demand
            rate = self._speed * min((factors[r] for r in narrow if demand[r]), default=1.0)
            if rate != work.rate:
                left_s = max(0.0, work.end_s - now) * work.rate
                work.rate = rate
                work.end_s = now + left_s / rate if rate > 0 else inf
            heap.append((work.end_s, work.serial, work))
        heapify(heap)
        self._heap = heap
        self.next_end_s = heap[0][0] if heap else inf
