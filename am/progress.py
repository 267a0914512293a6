"""A job's progress, kept by stage: what may start, what runs, what is done.

Every step of one task costs O(1) (O(log n) in the heap of its group), whatever the stage's size.
"""

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush

from am.task_groups import TaskGroup
from weft.model.errors import InvariantError
from weft.model.job import Edge, EdgeKind, Job, TaskPairs, one_to_one_children
from weft.protocol.messages import FinishedTask

WAITING, READY, RUNNING, DONE = range(4)


class StageProgress:
    """One stage: a state per task and the counters that decide when its children may start.

    A task is WAITING as long as `barriers` or its own entry of `missing` is above 0, READY once
    both are 0, RUNNING from its first grant on, and DONE for good; only a RUNNING one may become
    READY again. What holds after every call:

    * `finished` and `running` are the numbers of DONE and RUNNING tasks; a task with copies counts
      once, however many run;
    * a READY task's rank is in the `ready` heap of its group, exactly once; a RUNNING one's only
      while a copy of it is wanted (`copies`);
    * `work` is the declared duration x L1(demand / C) of WAITING and READY tasks together, summed
      in the order of events, so it may be off by rounding (`Progress.remaining_work` cuts at 0).

    `running` counts tasks, however many copies of each; `barriers` the unfinished parents that all
    tasks wait for, `missing` the unfinished parent tasks of each task, barriers aside. `ready_at`
    is by task, if kept. By task: `tries` has the launches of tasks launched more than once,
    `failures` those that count towards max_task_attempts, `copies` the live copies of tasks that
    were speculated on. `work` is the sum over unstarted tasks of declared duration x L1 norm.
    Without `group_of` there is one group whose ranks are the task numbers.
    """

    __slots__ = (
        "barrier_children",
        "barriers",
        "chain_children",
        "copies",
        "failures",
        "finished",
        "group_of",
        "groups",
        "missing",
        "pair_children",
        "position",
        "rank_of",
        "ready_at",
        "running",
        "state",
        "tasks",
        "tries",
        "work",
    )

    def __init__(self, position: int, tasks: int) -> None:
        self.position = position
        self.tasks = tasks
        self.state = bytearray(tasks)
        self.finished = 0
        self.running = 0
        self.barriers = 0
        self.missing: list[int] | None = None
        self.barrier_children: list[int] = []
        self.chain_children: list[int] = []
        self.pair_children: list[tuple[int, TaskPairs]] = []
        self.ready_at: list[float] | None = None
        self.tries: dict[int, int] = {}
        self.failures: dict[int, int] = {}
        self.copies: dict[int, int] = {}
        self.work = 0.0
        self.groups: Sequence[TaskGroup] = ()
        self.group_of: list[TaskGroup] | None = None
        self.rank_of: list[int] | None = None

    @property
    def complete(self) -> bool:
        """Whether every task is done."""
        return self.finished == self.tasks

    def place_of(self, task: int) -> tuple[TaskGroup, int]:
        """Return the group and rank of a task."""
        if self.group_of is None or self.rank_of is None:
            return self.groups[0], task
        return self.group_of[task], self.rank_of[task]

    def adopt(self, groups: Sequence[TaskGroup]) -> None:
        """Take the stage's groups; their heaps and sums follow from the states."""
        self.groups = groups
        if len(groups) == 1 and groups[0].tasks == range(self.tasks):
            self.group_of = self.rank_of = None
        else:
            self.group_of, self.rank_of = [groups[0]] * self.tasks, [0] * self.tasks
            for group in groups:
                for rank, task in enumerate(group.tasks):
                    self.group_of[task], self.rank_of[task] = group, rank
        self.work = 0.0
        state = self.state
        begun, mixed = self.running + self.finished > 0, len(set(state)) > 1
        for group in groups:
            left = list(range(len(group.tasks)))
            if begun:
                left = [rank for rank in left if state[group.tasks[rank]] <= READY]
            if mixed:
                group.ready = [rank for rank in left if state[group.tasks[rank]] == READY]
            else:
                group.ready = left[:] if READY in state else []
            group.unstarted = len(left)
            if isinstance(group.declared_s, float):
                group.unstarted_s = group.declared_s * len(left)
            else:
                group.unstarted_s = sum(group.declared_s[group.tasks[r]] for r in left)
            self.work += group.unstarted_s * group.norm


class Progress:
    """All stages of a job, and the groups whose number of ready tasks changed.

    The sums over stages (`finished`, `running`, `work`) change in the same call as the stages' own.
    `changed` is what the asker has not looked at yet: the code that changes how many tasks of a
    group are ready puts it there, and only the asker's next look empties it, so no change is ever
    missed. `version` grows with every change of a task's state, for askers that keep what they
    computed.

    `factor` is belief over declaration, by stage. `failed` counts failures of whatever task,
    `completed` the stages that ended while this attempt knew the job; `version` grows with every
    change. Those who need `ready_at` keep `now`. For `work` see `remaining_work`.
    """

    __slots__ = (
        "changed",
        "completed",
        "factor",
        "failed",
        "finished",
        "groups",
        "now",
        "running",
        "stages",
        "tasks",
        "version",
        "work",
    )

    def __init__(
        self,
        job: Job,
        finished: Iterable[FinishedTask] = (),
        factor: Sequence[float] = (),
    ) -> None:
        self.factor = factor or [1.0] * len(job.stages)
        self.stages = [StageProgress(i, stage.tasks) for i, stage in enumerate(job.stages)]
        self.tasks = job.task_count
        self.finished = 0
        self.running = 0
        self.failed = 0
        self.completed = 0
        self.version = 0
        self.now = 0.0
        self.work = 0.0
        self.groups: list[TaskGroup] = []
        self.changed: dict[int, TaskGroup] = {}
        for child, stage in enumerate(self.stages):
            for parent, edge in job.edges_of(child):
                if edge.kind in (EdgeKind.ONE_TO_ONE, EdgeKind.PAIRS):
                    self._chain(parent, stage, edge)
                else:
                    stage.barriers += 1
                    self.stages[parent].barrier_children.append(child)
        for done in finished:
            self.finish_early(done.stage, done.task)
        for position in job.topological_order():
            if self.stages[position].complete and not self.stages[position].finished:
                # A stage without tasks is complete from the start.
                self._completed(self.stages[position])
        for stage in self.stages:
            if stage.barriers == 0:
                self._open(stage)

    def _chain(self, position: int, child: StageProgress, edge: Edge) -> None:
        """Count the parent tasks of each task over an edge that is no barrier."""
        parent = self.stages[position]
        missing = child.missing = child.missing or [0] * child.tasks
        if edge.kind is EdgeKind.PAIRS:
            parent.pair_children.append((child.position, edge.pairs))
            for task in edge.pairs.children:
                missing[task] += 1
            return
        parent.chain_children.append(child.position)
        for task in range(child.tasks):
            missing[task] += len(edge.parent_tasks(parent.tasks, child.tasks, task))

    def keep_times(self, now: float) -> None:
        """Note from now on when each task became ready."""
        self.now = now
        for stage in self.stages:
            stage.ready_at = [now] * stage.tasks

    def adopt(self, groups: Sequence[Sequence[TaskGroup]]) -> None:
        """Take (new) groups for every stage; all of them count as changed."""
        self.groups = [group for stage in groups for group in stage]
        for stage, own in zip(self.stages, groups, strict=True):
            stage.adopt(own)
        self.changed = {group.number: group for group in self.groups if group.ready}
        self.version += 1
        self.work = sum(stage.work * self.factor[stage.position] for stage in self.stages)

    @property
    def done(self) -> bool:
        """Whether every task is done."""
        return self.finished == self.tasks

    @property
    def remaining_work(self) -> float:
        """srpt: sum over unstarted tasks of duration x L1(demand / C) (docs/rules.md, rule 37)."""
        unstarted = self.tasks - self.finished - self.running
        return max(self.work, 0.0) if unstarted else 0.0

    def rescale(self, stage: StageProgress, changes: Sequence[float]) -> None:
        """Apply changes of the belief about a stage's durations, in parts of the declared ones."""
        left, work = stage.work, self.work
        # Add one by one, as each addition rounds by itself.
        for change in changes:
            work += change * left
        self.work = work

    def mark(self, group: TaskGroup) -> None:
        """Have the asker look at a group again, or at those that replaced it."""
        if group.number < len(self.groups) and self.groups[group.number] is group:
            self.changed[group.number] = group
        else:
            self.changed.update((new.number, new) for new in self.stages[group.stage].groups)

    def _shift(self, stage: StageProgress, group: TaskGroup, task: int, sign: int) -> None:
        """Count a task as unstarted (1) or not (-1)."""
        own = group.declared_s
        seconds = own if isinstance(own, float) else own[task]
        group.unstarted += sign
        group.unstarted_s += sign * seconds
        work = sign * seconds * group.norm
        stage.work += work
        self.work += work * self.factor[stage.position]

    # -- steps of one task -------------------------------------------------------------------------

    def take(self, group: TaskGroup) -> int:
        """Start the best ready task of a group; return its rank, -1 when there is none."""
        ready = group.ready
        if not ready:
            return -1
        rank = heappop(ready)
        task = group.tasks[rank]
        stage = self.stages[group.stage]
        if stage.state[task] == RUNNING:
            # This is a copy of a straggler.
            stage.copies[task] += 1
            stage.tries[task] = stage.tries.get(task, 0) + 1
            return rank
        stage.state[task] = RUNNING
        stage.running += 1
        self.running += 1
        self.version += 1
        self._shift(stage, group, task, -1)
        return rank

    def take_run(self, group: TaskGroup, count: int) -> list[int]:
        """Start the best `count` ready tasks of a group that has so many, none of them a copy."""
        stage, ready, numbers = self.stages[group.stage], group.ready, group.tasks
        own, state, norm = group.declared_s, stage.state, group.norm
        factor = self.factor[stage.position]
        unstarted_s, stage_work, all_work = group.unstarted_s, stage.work, self.work
        if count == len(ready):
            tasks = [numbers[rank] for rank in sorted(ready)]
            ready.clear()
        else:
            tasks = [numbers[heappop(ready)] for _ in range(count)]
        for task in tasks:
            state[task] = RUNNING
        if isinstance(own, float):
            # Add one by one, as each addition rounds by itself.
            work = -own * norm
            change = work * factor
            for _ in tasks:
                unstarted_s -= own
                stage_work += work
                all_work += change
        else:
            for task in tasks:
                work = -own[task] * norm
                unstarted_s -= own[task]
                stage_work += work
                all_work += work * factor
        group.unstarted -= count
        group.unstarted_s, stage.work, self.work = unstarted_s, stage_work, all_work
        stage.running += count
        self.running += count
        self.version += count
        return tasks

    def begin(self, stage: StageProgress, tasks: Collection[int]) -> None:
        """Begin tasks that are ready and run already, in containers of an earlier attempt."""
        groups: dict[int, TaskGroup] = {}
        for task in tasks:
            stage.state[task] = RUNNING
            group, _ = stage.place_of(task)
            groups[group.number] = group
            self._shift(stage, group, task, -1)
        stage.running += len(tasks)
        self.running += len(tasks)
        self.version += 1
        for group in groups.values():
            group.ready = [rank for rank in group.ready if stage.state[group.tasks[rank]] == READY]
            heapify(group.ready)
        self.changed.update(groups)

    def give_back(self, stage: StageProgress, task: int) -> None:
        """Return a task to ready whose copy ended without success, unless another copy runs."""
        if stage.state[task] != RUNNING:
            return
        if task in stage.copies:
            stage.copies[task] -= 1
            if stage.copies[task] > 0:
                return
            self._unspeculate(stage, task)
        stage.tries[task] = stage.tries.get(task, 0) + 1
        stage.state[task] = READY
        stage.running -= 1
        self.running -= 1
        self.version += 1
        group, rank = stage.place_of(task)
        self._shift(stage, group, task, 1)
        if stage.ready_at is not None:
            stage.ready_at[task] = self.now
        heappush(group.ready, rank)
        self.changed[group.number] = group

    def _unspeculate(self, stage: StageProgress, task: int) -> None:
        """Forget a task's copies; one that still waits for a container is wanted no longer."""
        del stage.copies[task]
        group, rank = stage.place_of(task)
        if rank in group.ready:
            group.ready.remove(rank)
            heapify(group.ready)
            self.changed[group.number] = group

    def speculate(self, stage: StageProgress, task: int) -> None:
        """Want one more copy of a running task."""
        group, rank = stage.place_of(task)
        stage.copies[task] = stage.copies.get(task, 1)
        heappush(group.ready, rank)
        self.changed[group.number] = group

    def finish(self, stage: StageProgress, task: int) -> bool:
        """Finish a running task; return False when it was done already."""
        if stage.state[task] != RUNNING:
            return False
        if task in stage.copies:
            self._unspeculate(stage, task)
        stage.state[task] = DONE
        stage.running -= 1
        self.running -= 1
        self._count(stage, task)
        return True

    def finish_run(self, stage: StageProgress, tasks: Sequence[int]) -> None:
        """Finish running tasks without copies."""
        count, state = len(tasks), stage.state
        for task in tasks:
            state[task] = DONE
        stage.running -= count
        self.running -= count
        stage.finished += count
        self.finished += count
        self.version += count
        if stage.chain_children or stage.pair_children:
            for task in tasks:
                self._pass_on(stage, task)
        if stage.finished == stage.tasks:
            self._completed(stage)

    def finish_early(self, position: int, task: int) -> bool:
        """Finish a task that this attempt did not start; return False if that was known."""
        if not (0 <= position < len(self.stages) and 0 <= task < self.stages[position].tasks):
            return False
        stage = self.stages[position]
        if stage.state[task] == RUNNING:
            return self.finish(stage, task)
        if stage.state[task] == DONE:
            return False
        was = stage.state[task]
        stage.state[task] = DONE
        if stage.groups:
            group, rank = stage.place_of(task)
            self._shift(stage, group, task, -1)
            if was == READY:
                group.ready.remove(rank)
                heapify(group.ready)
                self.changed[group.number] = group
        self._count(stage, task)
        return True

    def _count(self, stage: StageProgress, task: int) -> None:
        stage.finished += 1
        self.finished += 1
        self.version += 1
        self._pass_on(stage, task)
        if stage.finished == stage.tasks:
            self._completed(stage)

    def _pass_on(self, stage: StageProgress, task: int) -> None:
        """Release what waits for this task alone, and not for its whole stage."""
        for child in stage.chain_children:
            children = one_to_one_children(stage.tasks, self.stages[child].tasks, task)
            self._advance(self.stages[child], children)
        for child, pairs in stage.pair_children:
            self._advance(self.stages[child], pairs.children_of(task))

    # -- what becomes ready ------------------------------------------------------------------------

    def _completed(self, stage: StageProgress) -> None:
        self.completed += 1
        for position in stage.barrier_children:
            child = self.stages[position]
            child.barriers -= 1
            if child.barriers == 0 and self.tasks:
                self._open(child)

    def _open(self, stage: StageProgress) -> None:
        """Make the tasks of a stage ready once nothing blocks it as a whole."""
        state, missing = stage.state, stage.missing
        whole = missing is None and not stage.finished and not any(state)
        if whole:
            stage.state = bytearray([READY]) * stage.tasks
        else:
            for task in range(stage.tasks):
                if state[task] == WAITING and (missing is None or missing[task] == 0):
                    state[task] = READY
        state = stage.state
        if stage.ready_at is not None:
            stage.ready_at = [self.now] * stage.tasks
        for group in stage.groups:
            tasks, ranks = group.tasks, range(len(group.tasks))
            group.ready = (
                list(ranks) if whole else [rank for rank in ranks if state[tasks[rank]] == READY]
            )
            if group.ready:
                self.changed[group.number] = group

    def _advance(self, child: StageProgress, children: Sequence[int]) -> None:
        """Count down the parents of these tasks over an edge that is no barrier."""
        missing = child.missing
        if missing is None:
            return
        for task in children:
            missing[task] -= 1
            if missing[task] == 0 and child.barriers == 0 and child.state[task] == WAITING:
                child.state[task] = READY
                if child.ready_at is not None:
                    child.ready_at[task] = self.now
                if child.groups:
                    group, rank = child.place_of(task)
                    heappush(group.ready, rank)
                    self.changed[group.number] = group

    # -- the books ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantError unless counters, heaps and states agree."""
        for stage in self.stages:
            _check_stage(stage)
        if self.finished != sum(stage.finished for stage in self.stages):
            raise InvariantError("finished tasks do not add up")
        if self.running != sum(stage.running for stage in self.stages):
            raise InvariantError("running tasks do not add up")
        for stage in self.stages:
            for child in stage.barrier_children:
                begun = self.stages[child].state
                if not stage.complete and (READY in begun or RUNNING in begun):
                    raise InvariantError(f"stage {child} began before stage {stage.position} ended")


class RemainingPath:
    """The longest path of what is left, by stage: how short a job is (Carbyne section 5.1).

    A stage that is not done counts with the estimated duration of its longest task. Worked out
    again only when a stage was completed or a belief moved: O(stages), never tasks.
    """

    __slots__ = ("_completed", "_factor", "_longest_s", "_order", "_value")

    def __init__(self, job: Job, base_s: Sequence[float]) -> None:
        self._longest_s = [
            max([stage.duration_of(task) for task in range(stage.tasks)], default=0.0)
            if stage.overrides
            else base
            for stage, base in zip(job.stages, base_s, strict=True)
        ]
        children: list[list[int]] = [[] for _ in job.stages]
        for child in range(len(job.stages)):
            for parent, _ in job.parents_of(child):
                children[parent].append(child)
        self._order = [(at, children[at]) for at in reversed(job.topological_order())]
        # How many stages had ended when the path was worked out last; an ended stage stays ended.
        self._completed = -1
        self._factor: list[float] = []
        self._value = 0.0

    def told(self, progress: Progress, factor: Sequence[float]) -> bool:
        """Return whether the path is the one that was asked for last."""
        return progress.completed == self._completed and factor == self._factor

    def longest_s(self, progress: Progress, factor: Sequence[float]) -> float:
        """Return the longest remaining path, s; `factor` is belief over declaration, by stage."""
        if not self.told(progress, factor):
            self._completed, self._factor = progress.completed, list(factor)
            stages = progress.stages
            done = [stage.finished == stage.tasks for stage in stages]
            longest_s, tail = self._longest_s, [0.0] * len(stages)
            for at, children in self._order:
                below = max([tail[child] for child in children]) if children else 0.0
                tail[at] = below if done[at] else below + longest_s[at] * factor[at]
            self._value = max(tail, default=0.0)
        return self._value


def _check_stage(stage: StageProgress) -> None:
    where = f"stage {stage.position}"
    if stage.state.count(DONE) != stage.finished:
        raise InvariantError(f"{where}: {stage.finished} finished, states say otherwise")
    if stage.state.count(RUNNING) != stage.running:
        raise InvariantError(f"{where}: {stage.running} running, states say otherwise")
    work = sum(group.unstarted_s * group.norm for group in stage.groups)
    if abs(work - stage.work) > 1e-6 * (1.0 + work):
        raise InvariantError(f"{where}: remaining work {stage.work}, groups say {work}")
    for group in stage.groups:
        states = [stage.state[task] for task in group.tasks]
        if group.unstarted != sum(s <= READY for s in states):
            raise InvariantError(f"{where}: unstarted tasks of group {group.number} miscounted")
        ready = [rank for rank in group.ready if states[rank] == READY]
        if len(set(group.ready)) != len(group.ready):
            raise InvariantError(f"{where}: a task is ready twice in group {group.number}")
        if sorted(ready) != [rank for rank, s in enumerate(states) if s == READY]:
            raise InvariantError(f"{where}: ready tasks of group {group.number} are lost")
