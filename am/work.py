"""A job under way: what is asked for, what is granted, what runs, what ended.

One task per container here; `am.reuse` keeps containers for several tasks (COBRA).
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

import numpy as np

from am.ask.registry import Asker
from am.ask.view import JobView, RunningTask
from am.asking import AskBook
from am.estimates import Estimates
from am.failures import NodeEnds, NodeFailures, Refusals, blame, diagnose
from am.gangs import Gangs
from am.launching import Held, Launcher
from am.lots import Lot, build_lots
from am.progress import RUNNING, Progress, StageProgress
from am.remaining_path import RemainingPath
from am.settings import MasterSettings
from am.sizes import size_containers, totals
from am.takeover import Takeover
from weft.errors import InvariantError
from weft.facts import Fact, Remark
from weft.ids import AttemptId, ContainerId, NodeId, app_of_attempt, attempt_of_container
from weft.job import EdgeKind
from weft.messages import (
    NO_TOKEN,
    NODE_ENDED,
    NODE_FULL,
    AttemptAccepted,
    Container,
    ContainerEnd,
    ContainersAsked,
    FinishedTask,
    ItemAnswer,
    Outcome,
    Preemption,
    StartAnswered,
    TasksEnded,
    containers_of,
    ends_of,
)
from weft.plan import Plan
from weft.resources import Vector

_SUCCEEDED: Final = Outcome.SUCCEEDED
_BY_TASK = (EdgeKind.ONE_TO_ONE, EdgeKind.PAIRS)  # a task waits for tasks, not for a stage
TELL_BELOW = 0.9  # remaining work is told again when it fell below this part of the last told


def _answered(item: ItemAnswer, waiting: Mapping[Hashable, Held]) -> Iterable[Hashable]:
    """The containers that an answer is for, at most as many as wait for one."""
    numbers = range(item.container_id, item.container_id + item.count)
    if item.count > len(waiting) + 1:
        return [key for key in waiting if isinstance(key, int) and key in numbers]
    return numbers


class Work:
    """The running part of a master; `verdict` is set when the job is over."""

    def __init__(
        self,
        attempt_id: AttemptId,
        settings: MasterSettings,
        asker: Asker,
        rng: np.random.Generator,
        accepted: AttemptAccepted,
    ) -> None:
        job = accepted.job
        self.job = job
        self.attempt_id = attempt_id
        self.settings = settings
        self.asker = asker
        self.rng = rng
        self.accepted = accepted
        self.capacity: Vector = totals(accepted.machines, len(accepted.types))
        self.share: Vector = accepted.share
        self.estimates = Estimates(job, settings.history, settings.estimates)
        self.progress = Progress(job, accepted.finished, self.estimates.factor)
        self.path = RemainingPath(job, self.estimates.base_s)
        self.book = AskBook(settings.resend_s, lossless=settings.lossless)
        self.gangs = Gangs(job, self.progress, self.book)
        self.launcher = Launcher(attempt_id, lossless=settings.lossless)
        self.launcher.prepare(job, accepted.types)
        nodes = sum(count for _, count in accepted.machines)
        self.nodes = NodeFailures(nodes, settings.node_failures_max, settings.avoided_share_max)
        self.node_ends = NodeEnds(settings.node_ends_max)
        self.refusals = Refusals(settings.refused_wait_s)
        self.notes: list[Fact] = []
        self.verdict: tuple[bool, str] | None = None
        self.review = False  # the asker must look again whatever the lots say
        self.planned = False
        self.takeover = Takeover(
            accepted.held, settings.takeover_wait_s, self.progress, self.book, self.launcher
        )
        self._seen: set[ContainerId] = set()  # every container ever granted, or ended before
        self._ended_first: set[ContainerId] = set()
        self.racks: dict[NodeId, str] = dict(accepted.racks)  # where known; none: there is one
        self._told_work = 0.0
        self._parents = [
            [(parent, kind not in _BY_TASK) for parent, kind in job.parents_of(stage)]
            for stage in range(len(job.stages))
        ]
        self._pairs = {
            (parent, child): edge.pairs
            for child in range(len(job.stages))
            for parent, edge in job.edges_of(child)
            if edge.kind is EdgeKind.PAIRS
        }

    def adopt(self, plan: Plan | None) -> None:
        """Follow a plan's order from now on (None: breadth first); running tasks go on."""
        for lot in self.progress.lots:
            lot.ready = []
            self.book.retire(lot)
        lots = build_lots(
            self.job, self.accepted.types, self.capacity, plan, self.estimates.base_s,
            self.settings.lots,
        )  # fmt: skip
        own = getattr(self.asker, "container", "task"), getattr(self.asker, "sees", ())
        every = [lot for stage in lots for lot in stage]
        size_containers(every, *own, self.job, self.accepted.types, self.accepted.machines)
        self.progress.adopt(lots)
        self.planned = True
        self.review = True
        self._judge()

    # -- asking ------------------------------------------------------------------------------------

    @property
    def wants_to_ask(self) -> bool:
        """Whether there is something to tell the manager before the next heartbeat."""
        progress = self.progress
        if self.takeover.waiting:
            return self.book.owes
        if self.refusals.count:
            return False  # asking again at once would be refused as fast
        if self.review or progress.changed or self.book.owes:
            return True
        return progress.remaining_work < TELL_BELOW * self._told_work

    @property
    def silent(self) -> bool:
        """Whether the next heartbeat would say nothing that the manager does not know."""
        progress = self.progress
        return (
            not (self.review or progress.changed or self.launcher.waits)
            and not self.asker.follows_share
            and self.book.silent
            and progress.remaining_work == self._told_work
        )

    def message(self, now: float) -> ContainersAsked:
        """The next request; also the heartbeat."""
        progress = self.progress
        work = self._told_work = progress.remaining_work
        done = progress.finished / max(progress.tasks, 1)
        path_s = self.path.longest_s(progress.stages, self.estimates.factor)
        return self.book.message(
            self.attempt_id, now, self.estimates.duration_s, done, work, path_s
        )

    def wake(self) -> None:
        """The asker's time has come."""
        self.review = True

    def settle(self, now: float) -> float | None:
        """Decide what needs no word from the manager: what to take over of an earlier attempt."""
        if not self.takeover.waiting or not self.planned:
            return None
        again_s = self.takeover.step(now)
        self._taken_over()
        return again_s

    def _taken_over(self) -> None:
        """The asker looks again once nothing is left to be taken over."""
        if not self.takeover.waiting:
            self.review = True

    def consult(self, now: float) -> float | None:
        """Let the asker look, if there is anything new; answers when it wants to look again."""
        progress = self.progress
        if not self.planned or not (progress.changed or self.review) or self.takeover.waiting:
            return None
        self.gangs.hold_back()
        wish = self.asker.ask(self._view(), now, self.rng)
        for lot, containers, kind in wish.rows:
            self.book.want(progress.lots[lot], kind, containers)
        progress.changed = {}
        self.review = False
        return wish.wake_after_s

    def _view(self) -> JobView:
        progress, asker = self.progress, self.asker
        if not asker.follows_share:
            return JobView(progress.changed, (), self.share, self.capacity)
        return JobView(
            changed=progress.changed,
            available=[
                lot for lot in progress.lots if lot.ready and not self.gangs.awaits_parents(lot)
            ],
            share=self.share,
            capacity=self.capacity,
            lots=progress.lots,
            factors=self.estimates.factor,
            states=[stage.state for stage in progress.stages],
            parents=self._parents,
            pairs=self._pairs,
            running=[
                RunningTask(held.lot.stage, held.task, held.launched_s)
                for held in self.launcher.held.values()
                if not held.stopping
            ],
            version=progress.version,
        )

    def follow_share(self, share: Vector) -> None:
        """The job's share changed."""
        if share and share != self.share:
            self.share = share
            self.review = self.review or self.asker.follows_share

    def holdings(self) -> tuple[tuple[ContainerId, NodeId], ...]:
        """The containers held, with their nodes."""
        own = tuple((held.container_id, held.node) for held in self.launcher.held.values())
        return own + tuple(
            (one.container_id, one.node_id) for one in self.takeover.waiting.values()
        )

    def disown(self, told: tuple[Container, ...]) -> None:
        """Give back what the manager says to be taken over, and is not."""
        known = {number for number, _ in self.holdings()}
        for container in told:
            if container.container_id not in known:
                self.book.release(container.container_id)

    def restart(self, now: float) -> None:
        """The manager restarted and knows no ask, release or blacklist any more.

        Nor does it know of containers that their node had not started by then: those are given up.
        """
        self.book.restart()
        for held in list(self.launcher.unanswered.values()):
            if not held.stopping:
                self.launcher.stop_surely(held.node, held.container_id, now)
                self._give_up(held)
        for held in self.launcher.held.values():
            if held.stopping:
                self.book.release(held.container_id)
        for container_id in self.takeover.refused:
            self.book.release(container_id)
        if self.nodes.avoided:
            self.book.blacklist(tuple(sorted(self.nodes.avoided)))

    # -- grants ------------------------------------------------------------------------------------

    def take(self, containers: tuple[Container, ...], now: float) -> None:
        """Start a task in every new container, or give the container back."""
        seen, book, progress, launcher = self._seen, self.book, self.progress, self.launcher
        avoided = self.nodes.avoided
        spoilt = (
            self.gangs.spoilt(containers_of(containers), avoided, self._ended_first)
            if self.gangs.stages
            else ()
        )
        for told in containers:
            if told.count > 1 and not spoilt and self._take_run(told, now):
                continue
            for container in containers_of((told,)):
                container_id, node = container.container_id, container.node_id
                if container_id in seen:
                    self._granted_late(container_id, container.ask_id)
                    continue
                seen.add(container_id)
                row = book.granted(container.ask_id)
                if row is None or self.verdict is not None:
                    book.release(container_id)
                    continue
                lot = row.lot
                if node in avoided or lot.stage in spoilt:
                    book.release(container_id)
                    progress.mark(lot)
                    continue
                if not lot.ready:
                    lot = self._other_lot(lot)
                rank = progress.take(lot)
                if rank < 0:
                    book.release(container_id)
                    continue
                if row.surplus:
                    progress.mark(lot)  # used all the same: less is wanted under its other row
                task = lot.tasks[rank]
                stage = progress.stages[lot.stage]
                tries = stage.tries.get(task, 0) if stage.tries else 0
                launcher.start(
                    Held(container_id, node, lot, stage, task, tries, now, container.boot)
                )
        if self.asker.follows_share:
            self.review = True

    def _take_run(self, run: Container, now: float) -> bool:
        """Start a task in each container of a run; False, and nothing is done, where it is no plain
        case: then one after the other.
        """
        first, count, node = run.container_id, run.count, run.node_id
        row = self.book.rows.get(run.ask_id)
        if row is None or self.verdict is not None or node in self.nodes.avoided:
            return False
        lot, progress = row.lot, self.progress
        stage = progress.stages[lot.stage]
        numbers = range(first, first + count)
        if len(lot.ready) < count or stage.copies or not self._seen.isdisjoint(numbers):
            return False
        if not self.book.granted_run(row, count):
            return False
        self._seen.update(numbers)
        tries = stage.tries
        self.launcher.start_run([
            Held(
                first + place, node, lot, stage, task, tries.get(task, 0) if tries else 0, now,
                run.boot,
            )
            for place, task in enumerate(progress.take_run(lot, count))
        ])  # fmt: skip
        return True

    def _granted_late(self, container_id: ContainerId, ask_id: int) -> None:
        """A doubled grant, or one that its own end overtook: then another is wanted."""
        if container_id not in self._ended_first:
            return
        self._ended_first.discard(container_id)
        row = self.book.granted(ask_id)
        if row is not None:
            self.progress.mark(row.lot)

    def _other_lot(self, lot: Lot) -> Lot:
        """Another lot of the stage that the container serves as well; the same if there is none."""
        for other in self.progress.stages[lot.stage].lots:
            if other.ready and other.demand == lot.demand:
                self.progress.mark(other)  # less is wanted there now
                return other
        return lot

    def start_answered(self, event: StartAnswered, now: float) -> None:
        """What was refused runs elsewhere."""
        if self.takeover.waiting and self.planned:
            found = self.takeover.answered(event)
            if found:
                self.begin(found, now)
            self._taken_over()
        unanswered = self.launcher.unanswered
        for item in event.items:
            if item.stage < 0:
                self.launcher.answered(item.container_id)
            for number in _answered(item, unanswered):
                held = unanswered.pop(number, None)
                if item.error and self.launcher.lossless:
                    held = held or self.launcher.held.get(number)
                if held is not None and item.error:
                    self._give_up(held)
                    self._refused(held.node, item.error, now)
                elif held is not None:
                    self.refusals.count = 0

    def _refused(self, node: NodeId, error: str, now: float) -> None:
        """A node that has less room than the manager believes, or that takes no tokens, is as bad
        as one that fails tasks. Where no node takes them there is no end but this.
        """
        untrusting = error.startswith(NO_TOKEN)
        if untrusting and self.refusals.one_more(now) and self.verdict is None:
            self.verdict = (False, self.refusals.why(node, error, now))
        if (untrusting or error == NODE_FULL) and self.nodes.count(node):
            self._avoid(node, f"refused starts ({error})" if untrusting else "refused starts")

    def _avoid(self, node: NodeId, what: str) -> None:
        self.book.blacklist(tuple(sorted(self.nodes.avoided)))
        if self.nodes.ignored:
            text = f"no node is avoided any more: after {node} there would be too many"
            self.notes.append(Remark("warning", text))
            return
        text = f"node {node} is avoided after {self.nodes.failures_on(node)} {what}"
        self.notes.append(Remark("warning", text))

    def _give_up(self, held: Held) -> None:
        """A container that never runs its task; the task is ready again."""
        self.launcher.unanswered.pop(held.key, None)
        del self.launcher.held[held.key]
        self.book.release(held.container_id)
        self.progress.give_back(held.stage, held.task)
        self.review = self.review or self.asker.follows_share

    # -- ends --------------------------------------------------------------------------------------

    def tasks_ended(self, event: TasksEnded, now: float) -> None:
        """Ends inside reusable containers: none are held here."""

    def ended(self, end: ContainerEnd, now: float) -> None:
        """A container ended, or a run of them."""
        if not end.tasks or not self._run_succeeded(end):
            for one in ends_of(end):
                self.container_ended(one, now)

    def container_ended(self, end: ContainerEnd, now: float) -> None:
        """A container ended; ends are counted once."""
        if self.takeover.waiting:
            self.takeover.ended(end.container_id)
            self._taken_over()
        held = self.launcher.held.pop(end.container_id, None)
        if held is None:
            self._unknown_ended(end)
            return
        self.launcher.unanswered.pop(end.container_id, None)
        if end.outcome is _SUCCEEDED:
            self._succeeded(held, end.run_s)
        elif held.stopping or not end.outcome.is_task_fault:
            self.progress.give_back(held.stage, held.task)
            if end.outcome is Outcome.LOST and end.exit_code == NODE_ENDED:
                self.ended_node(held, end.message, now)
        else:
            self._failed(held, end)
        if self.asker.follows_share:
            self.review = True

    def preempted(self, notices: tuple[Preemption, ...]) -> None:
        """Containers are about to be taken back: what runs there has until then to end."""

    def _succeeded(self, held: Held, run_s: float) -> None:
        stage, task, lot = held.stage, held.task, held.lot
        if task in stage.copies:
            self._stop_copies(stage, task)
        if not self.progress.finish(stage, task):
            return
        factor = self.estimates.factor[lot.stage]
        if self.estimates.observe(lot.stage, lot.declared_of(task), run_s):
            for other in stage.lots:
                self.book.touch(other)
            self.review = self.review or self.asker.follows_share
        self.progress.rescale(stage, self.estimates.factor[lot.stage] - factor)
        if stage.finished == stage.tasks:
            self._judge()

    def _run_succeeded(self, end: ContainerEnd) -> bool:
        """Like tasks ended alike: what `container_ended` does with each; False, and nothing is
        done, where one of them is not what it was granted for, or has copies.
        """
        first, tasks, all_held = end.container_id, end.tasks, self.launcher.held
        held = all_held.get(first)
        if held is None or end.outcome is not _SUCCEEDED or self.takeover.waiting:
            return False
        stage, lot = held.stage, held.lot
        if stage.copies:
            return False
        for place, task in enumerate(tasks):
            one = all_held.get(first + place)
            if one is None or one.lot is not lot or one.task != task:
                return False
            if stage.state[task] != RUNNING:
                return False
        for number in range(first, first + len(tasks)):
            del all_held[number]
            self.launcher.unanswered.pop(number, None)
        progress, estimates, at = self.progress, self.estimates, lot.stage
        progress.finish_run(stage, tasks)
        for task in tasks:
            factor = estimates.factor[at]
            if estimates.observe(at, lot.declared_of(task), end.run_s):
                for other in stage.lots:
                    self.book.touch(other)
            progress.rescale(stage, estimates.factor[at] - factor)
        if stage.finished == stage.tasks:
            self._judge()
        self.review = self.review or self.asker.follows_share
        return True

    def _judge(self) -> None:
        if self.progress.done and self.verdict is None:
            self.verdict = (True, "")

    def _failed(self, held: Held, end: ContainerEnd) -> None:
        stage, task = held.stage, held.task
        self.progress.failed += 1
        failures = stage.failures[task] = stage.failures.get(task, 0) + 1
        self.progress.give_back(stage, task)
        if self.nodes.count(held.node):
            self._avoid(held.node, "failed tasks")
        if failures >= self.job.max_task_attempts and self.verdict is None:
            name = self.job.stages[stage.position].name
            why = diagnose(
                name, task, failures, held.node, end.outcome, end.exit_code, end.message
            )  # fmt: skip
            self.verdict = (False, why)

    def ended_node(self, held: Held, why: str, now: float) -> None:
        """The node that ran a task ended: after too many the task is taken for the cause.

        One that had run for long is not: nodes end now and then.
        """
        if now - held.launched_s > self.settings.node_ends_within_s:
            return
        stage = held.stage.position
        nodes = self.node_ends.count(stage, held.task, held.node)
        if nodes and self.verdict is None:
            name = self.job.stages[stage].name
            self.verdict = (False, blame(name, held.task, nodes, why))

    def _unknown_ended(self, end: ContainerEnd) -> None:
        """A doubled end, one that overtook its grant, or one of an earlier attempt's tasks."""
        attempt = attempt_of_container(end.container_id)
        if end.outcome is Outcome.SUCCEEDED and end.stage >= 0 and end.container_id in self._seen:
            # its node was thought to be lost, and came back with it
            self.finish_early(FinishedTask(end.stage, end.task, end.run_s))
        if attempt == self.attempt_id:
            if end.container_id not in self._seen:
                self._seen.add(end.container_id)
                self._ended_first.add(end.container_id)
            return
        same_app = app_of_attempt(attempt) == app_of_attempt(self.attempt_id)
        earlier = same_app and attempt < self.attempt_id
        if earlier and end.outcome is Outcome.SUCCEEDED and end.stage >= 0:
            self.finish_early(FinishedTask(end.stage, end.task, end.run_s))

    def finish_early(self, done: FinishedTask) -> None:
        """An earlier attempt's task is done after all: nothing more of it needs to run."""
        if not self.progress.finish_early(done.stage, done.task):
            return
        self._stop_copies(self.progress.stages[done.stage], done.task)
        self._judge()

    def _stop_copies(self, stage: StageProgress, task: int) -> None:
        """The first copy to finish wins; the others are stopped."""
        for held in self.launcher.held.values():
            if held.task == task and held.stage is stage and not held.stopping:
                self.launcher.stop(held)
                self.book.release(held.container_id)

    def begin(self, found: Mapping[int, list[tuple[Container, int]]], now: float) -> None:
        """Tasks, by stage, that already run in containers of an earlier attempt are followed."""
        for position, tasks in found.items():
            stage = self.progress.stages[position]
            self.progress.begin(stage, [task for _, task in tasks])
            for container, task in tasks:
                lot, _ = stage.place_of(task)
                number, tries = container.container_id, stage.tries.get(task, 0)
                held = Held(number, container.node_id, lot, stage, task, tries, now, container.boot)
                self.launcher.held[held.key] = held
                self._seen.add(number)

    def stop_all(self) -> None:
        """Order the end of everything that runs."""
        self.launcher.stop_all()

    # -- stragglers --------------------------------------------------------------------------------

    def speculate(self, now: float) -> None:
        """Near the end of a stage, want a second copy of what runs much longer than expected."""
        progress, settings = self.progress, self.settings
        if not settings.speculate:
            return
        for held in self.launcher.held.values():
            stage = held.stage
            expected = held.lot.declared_of(held.task) * self.estimates.factor[held.lot.stage]
            if (
                now - held.launched_s > settings.straggler_factor * expected
                and stage.finished + stage.running == stage.tasks
                and stage.finished >= settings.straggler_finished_min * stage.tasks
                and held.task not in stage.copies
                and stage.state[held.task] == RUNNING
            ):
                progress.speculate(stage, held.task)

    # -- the books ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantError where progress, containers and asks contradict each other."""
        self.book.check()
        progress = self.progress
        progress.check()
        for held in self.launcher.held.values():
            if held.container_id not in self._seen:
                raise InvariantError(f"container {held.container_id} is held but was never granted")
        if self.verdict is not None:
            return
        _check_running(self.launcher.held.values(), self.progress)
        for lot in progress.lots:
            wanted = sum(row.wanted for row in lot.rows if row is not None)
            if wanted > len(lot.ready) and lot.number not in progress.changed:
                raise InvariantError(f"lot {lot.number} asks for more than it can start")


def _check_running(held: Iterable[Held], progress: Progress) -> None:
    """A running task has a container (as many as copies), and no other task has one."""
    copies: dict[tuple[int, int], int] = {}
    for one in held:
        key = (one.lot.stage, one.task)
        copies[key] = copies.get(key, 0) + (not one.stopping)
    running = 0
    for (position, task), count in copies.items():
        stage = progress.stages[position]
        if stage.state[task] == RUNNING:
            running += 1
            if count != stage.copies.get(task, 1):
                raise InvariantError(f"stage {position} task {task} has {count} copies")
        elif count:
            raise InvariantError(f"stage {position} task {task} runs though it is not wanted")
    if running != progress.running:
        raise InvariantError(f"{progress.running} tasks run, {running} have a container")
