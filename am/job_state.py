"""What a master knows of its job, in whatever containers the tasks run.

`am.work` (an asker says how many tasks want a container) and `am.reuse` (an asker holds containers)
both keep one: how far the tasks are, the estimates of them, what was asked for, which nodes are
bad, and the verdict. Both judge the end of a task by these functions, so a failure counts alike.
"""

from collections.abc import Sequence

from am.asking import AskTable
from am.estimates import Estimates
from am.failures import REFUSED_WAIT_S, NodeEnds, NodeFailures, Refusals, blame, diagnose
from am.gangs import Gangs
from am.launching import LaunchedTask, Launcher
from am.progress import Progress, StageProgress
from am.settings import MasterSettings
from am.sizes import Machines, Wanted, count_of, size_containers, totals
from am.task_groups import TaskGroup, build_groups
from weft.model.ids import AttemptId, ContainerId, NodeId, app_of_attempt, attempt_of_container
from weft.model.plan import Plan
from weft.model.resources import Vector
from weft.protocol.effects import MakePlan
from weft.protocol.facts import Fact, Remark
from weft.protocol.messages import (
    NO_TOKEN,
    NODE_FULL,
    AttemptAccepted,
    ContainerEnd,
    ContainersGranted,
    FinishedTask,
    Outcome,
)

# A node that ends later than this after a task's start ended by itself, s.
NODE_ENDS_WITHIN_S = 3600.0


class JobState:
    """One attempt's job, from its acceptance to the `verdict`: (succeeded, why not).

    `seen` has every container that was ever granted, and those that ended before their grant
    arrived, which are in `ended_first` as well until it is: messages come doubled and in any
    order, and a container may be used once. `review`: the asker has to look again although no task
    became ready or ended; where it does not follow the share (`follows_share`), only what a new
    plan or its own alarm changes is a reason.

    A plan is being made for the machines `planning_for`. `racks` has the nodes whose rack is known;
    where it is empty, there is one rack. `planned` says that there are groups, of a plan or breadth
    first, so that tasks may be asked for.
    """

    def __init__(
        self, attempt_id: AttemptId, settings: MasterSettings, accepted: AttemptAccepted
    ) -> None:
        job = accepted.job
        self.job = job
        self.attempt_id = attempt_id
        self.settings = settings
        self.accepted = accepted
        self.follows_share = False
        self.machines = accepted.machines
        self.speeds = accepted.speeds
        self.labels = accepted.labels
        self.planning_for: Machines | None = None
        self.capacity: Vector = totals(accepted.machines, len(accepted.types))
        self.share: Vector = accepted.share
        self.estimates = Estimates(job, settings.history)
        self.progress = Progress(job, accepted.finished, self.estimates.factor)
        self.book = AskTable(settings.resend_s, lossless=settings.lossless)
        self.gangs = Gangs(job, self.progress, self.book)
        self.launcher = Launcher(attempt_id, lossless=settings.lossless)
        self.launcher.prepare(job, accepted.types)
        self.nodes = NodeFailures(
            # Where no machine with a label was told of, nothing is known of those that have it.
            lambda label: count_of(self.open_to(label)) if self.labels or not label else 0,
            settings.node_failures_max,
        )
        self.node_ends = NodeEnds(settings.node_ends_max)
        self.refusals = Refusals(REFUSED_WAIT_S)
        self.racks: dict[NodeId, str] = dict(accepted.racks)
        self.notes: list[Fact] = []
        self.verdict: tuple[bool, str] | None = None
        self.planned = False
        self.review = False
        self.seen: set[ContainerId] = set()
        self.ended_first: set[ContainerId] = set()

    def adopt(
        self, plan: Plan | None, container: Wanted = "task", sees: tuple[str, ...] = ()
    ) -> None:
        """Follow a plan's order from now on (None: breadth first); running tasks go on.

        `container` and `sees`: see `am.sizes.size_containers`.
        """
        for group in self.progress.groups:
            group.ready = []
            self.book.retire(group)
        job, accepted = self.job, self.accepted
        groups = build_groups(job, accepted.types, self.capacity, plan, self.estimates.base_s)
        every = [group for stage in groups for group in stage]
        size_containers(every, container, sees, job, accepted.types, self.open_to)
        self.progress.adopt(groups)
        self.planned = True
        self.review = True
        self.judge()

    def open_to(self, label: str) -> Machines:
        """Return the machines that tasks with a label ("": without one) may use."""
        if not self.labels:
            return self.machines
        kinds = zip(self.machines, self.labels, strict=True)
        return [kind for kind, names in kinds if (label in names if label else not names)]

    def see_machines(self, event: AttemptAccepted | ContainersGranted) -> bool:
        """Go by the reported machines from now on if there are more; return
        whether.

        Fewer are no news: nodes that were lost may come back, and a job keeps to the cluster that
        it began with.
        """
        machines, count = event.machines, count_of(event.machines)
        if count <= count_of(self.machines):
            return False
        avoided = self.nodes.avoided
        self.machines, self.speeds, self.labels = machines, event.speeds, event.labels
        self.capacity = totals(machines, len(self.accepted.types))
        if self.nodes.avoided != avoided:
            # So many nodes were bad that it was not their fault, or are so few now that it was.
            self.book.blacklist(tuple(sorted(self.nodes.avoided)))
        _weigh(self.progress, self.capacity)
        self.review = self.review or self.follows_share
        return True

    def order_plan(self) -> MakePlan:
        """Order a plan for the machines that are known; one at a time is made."""
        settings, accepted = self.settings, self.accepted
        self.planning_for = self.machines
        return MakePlan(
            settings.planner,
            self.estimates.applied(),
            accepted.types,
            self.machines,
            accepted.seed,
            settings.planner_options,
            self.speeds,
        )

    def plan_came(self) -> bool:
        """Note that a plan is made; return whether more machines came meanwhile."""
        made_for, self.planning_for = self.planning_for, None
        return made_for is not None and made_for != self.machines and not self.progress.done

    def follow_share(self, share: Vector) -> None:
        """Take a changed share; askers that follow it look again."""
        if share and share != self.share:
            self.share = share
            self.review = self.review or self.follows_share

    def blacklist_again(self) -> None:
        """Tell a manager that knows nothing of it which nodes are avoided."""
        if self.nodes.avoided:
            self.book.blacklist(tuple(sorted(self.nodes.avoided)))

    def judge(self) -> None:
        """Decide that the job has succeeded once every task has."""
        if self.progress.done and self.verdict is None:
            self.verdict = (True, "")

    # -- containers that come to nothing -----------------------------------------------------------

    def refused(self, node: NodeId, label: str, error: str, now: float) -> None:
        """Count a node that refused a start like one that fails tasks.

        It has less room than the manager assumes, or takes no tokens. Where no node takes tokens,
        the job fails.
        """
        untrusting = error.startswith(NO_TOKEN)
        if untrusting and self.refusals.one_more(now) and self.verdict is None:
            self.verdict = (False, self.refusals.why(node, error, now))
        if (untrusting or error == NODE_FULL) and self.nodes.count(node, label):
            self._avoid(
                node, label, f"refused starts ({error})" if untrusting else "refused starts"
            )

    def _avoid(self, node: NodeId, label: str, what: str) -> None:
        self.book.blacklist(tuple(sorted(self.nodes.avoided)))
        if self.nodes.ignored(label):
            text = f"no node is avoided any more: after {node} there would be too many"
            self.notes.append(Remark("warning", text))
            return
        text = f"node {node} is avoided after {self.nodes.failures_on(node)} {what}"
        self.notes.append(Remark("warning", text))

    def give_up(self, held: LaunchedTask) -> None:
        """Give up a container that never runs its task; the task is ready again."""
        self.launcher.unanswered.pop(held.key, None)
        del self.launcher.held[held.key]
        self.book.release(held.container_id)
        self.progress.give_back(held.stage, held.task)
        self.review = self.review or self.follows_share

    # -- ends of tasks -----------------------------------------------------------------------------

    def succeeded(self, held: LaunchedTask, run_s: float) -> None:
        """Finish a task; others of its stage are then expected to last as it did."""
        stage, task = held.stage, held.task
        if task in stage.copies:
            self._stop_copies(stage, task)
        if not self.progress.finish(stage, task):
            return
        self._measured(stage, (held.group.declared_of(task),), (run_s,))

    def succeeded_run(
        self, stage: StageProgress, group: TaskGroup, tasks: Sequence[int], runs_s: Sequence[float]
    ) -> None:
        """Finish running tasks of a stage that have no copies, as `succeeded` would each."""
        self.progress.finish_run(stage, tasks)
        # All groups of a stage share one value.
        own = group.declared_s
        declared = [own] * len(tasks) if isinstance(own, float) else [own[task] for task in tasks]
        self._measured(stage, declared, runs_s)
        self.review = self.review or self.follows_share

    def _measured(
        self, stage: StageProgress, declared_s: Sequence[float], runs_s: Sequence[float]
    ) -> None:
        """Learn from how long tasks of a stage lasted, s; the job may be done with them."""
        tell, changes = self.estimates.observe(stage.position, declared_s, runs_s)
        if tell:
            for group in stage.groups:
                self.book.touch(group)
            self.review = self.review or self.follows_share
        self.progress.rescale(stage, changes)
        if stage.finished == stage.tasks:
            self.judge()

    def failed(self, held: LaunchedTask, end: ContainerEnd) -> None:
        """Count a task's own failure; it is tried again, elsewhere if need be, up to a limit."""
        stage, task = held.stage, held.task
        self.progress.failed += 1
        failures = stage.failures[task] = stage.failures.get(task, 0) + 1
        self.progress.give_back(stage, task)
        if self.nodes.count(held.node, held.group.label):
            self._avoid(held.node, held.group.label, "failed tasks")
        if failures >= self.job.max_task_attempts and self.verdict is None:
            name = self.job.stages[stage.position].name
            why = diagnose(name, task, failures, held.node, end.outcome, end.exit_code, end.message)
            self.verdict = (False, why)

    def ended_node(self, held: LaunchedTask, why: str, now: float) -> None:
        """Count the end of the node that ran a task.

        After too many the task is taken for the cause. One that had run for long is not: nodes end
        now and then.
        """
        if now - held.launched_s > NODE_ENDS_WITHIN_S:
            return
        stage = held.stage.position
        nodes = self.node_ends.count(stage, held.task, held.node)
        if nodes and self.verdict is None:
            name = self.job.stages[stage].name
            self.verdict = (False, blame(name, held.task, nodes, why))

    def node_failed(self, held: LaunchedTask, why: str) -> None:
        """Count a failure of a node's own on a task that ran there; the task is tried elsewhere.

        One that meets it on one node after the other may be what fills their disks.
        """
        if self.nodes.count(held.node, held.group.label):
            self._avoid(held.node, held.group.label, "faults of its own")
        stage = held.stage.position
        nodes = self.node_ends.fault(stage, held.task, held.node)
        if nodes and self.verdict is None:
            name = self.job.stages[stage].name
            self.verdict = (False, blame(name, held.task, nodes, why, "was failed by"))

    def unknown_ended(self, end: ContainerEnd) -> None:
        """Handle an unknown container's end: doubled, before its grant, or an earlier attempt's."""
        attempt = attempt_of_container(end.container_id)
        if end.outcome is Outcome.SUCCEEDED and end.stage >= 0 and end.container_id in self.seen:
            # its node was thought to be lost, and came back with it
            self.finish_early(FinishedTask(end.stage, end.task, end.run_s))
        if attempt == self.attempt_id:
            if end.container_id not in self.seen:
                self.seen.add(end.container_id)
                self.ended_first.add(end.container_id)
            return
        same_app = app_of_attempt(attempt) == app_of_attempt(self.attempt_id)
        earlier = same_app and attempt < self.attempt_id
        if earlier and end.outcome is Outcome.SUCCEEDED and end.stage >= 0:
            self.finish_early(FinishedTask(end.stage, end.task, end.run_s))

    def finish_early(self, done: FinishedTask) -> None:
        """Finish a task that runs or was still to run: its copies are stopped."""
        if not self.progress.finish_early(done.stage, done.task):
            return
        self._stop_copies(self.progress.stages[done.stage], done.task)
        self.judge()

    def _stop_copies(self, stage: StageProgress, task: int) -> None:
        """Stop all other copies of a task once the first has finished.

        Those in a reusable container (`LaunchedTask.size`) go on, as no task can be stopped alone
        there: what runs twice there runs to its end.
        """
        for held in self.launcher.held.values():
            if held.task == task and held.stage is stage and not (held.stopping or held.size):
                self.launcher.stop(held)
                self.book.release(held.container_id)


def _weigh(progress: Progress, capacity: Vector) -> None:
    """Measure the work that is left by another capacity of the cluster."""
    for stage in progress.stages:
        for group in stage.groups:
            group.weigh(capacity)
        stage.work = sum(group.unstarted_s * group.norm for group in stage.groups)
    progress.version += 1
    progress.work = sum(stage.work * progress.factor[stage.position] for stage in progress.stages)
