"""What follows from a moment: a recorded cluster goes on in the simulator, as it was or changed.

The cores are those of the tapes (`sim.replay.rebuild`), so what runs, is held, pending and planned
is exactly what it was. Jobs, nodes and what clients changed come again, at their times, as from the
start (`sim.replay.whatif`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from am.core import ApplicationMaster
from nm.core import NodeManager
from rm.match.registry import make_matcher
from rm.state.lifecycle import AppState
from sim.engine import Actor
from sim.recorder import Recorder
from sim.replay.rebuild import Cut, Running, Tape, stand
from sim.replay.recorded_delays import Delays, MeasuredSimulation
from sim.replay.verify import Core
from sim.replay.whatif import Jct, compared, jobs_again, rest_of
from sim.settings import SimSettings, manager_settings
from weft.model.cluster import ClusterSpec
from weft.model.errors import InputError
from weft.model.ids import AppId, ContainerId, app_of_container
from weft.model.job import Job
from weft.protocol.effects import Kill, Launch, ProcessEnded, Started, StopRequested
from weft.protocol.messages import (
    MasterLaunch,
    Outcome,
    TaskLaunch,
    launches_of,
    master_address,
    node_address,
)

OPEN = (AppState.NEW, AppState.SUBMITTED, AppState.ACCEPTED, AppState.RUNNING)
# A node whose capacity is changed leaves, and is back after so long.
BACK_S = 0.1


class ForkedSimulation(MeasuredSimulation):
    """A cluster from the cut on. `changes` are made at once: matcher, settings, nodes.

    Running masters keep their planner and asker, as in a live cluster whose manager is started
    anew; masters that begin later have those of the settings.
    """

    def __init__(
        self,
        cut: Cut,
        settings: SimSettings,
        *,
        scheduler_changed: bool = False,
        cluster: ClusterSpec | None = None,
        delays: Delays | None = None,
    ) -> None:
        self._cut = cut
        self._changed = scheduler_changed
        self._wanted = cluster
        # The processes that run, by their starts.
        self._processes: dict[ContainerId, int] = {}
        self._starts = 0
        self._usual: dict[tuple[AppId, int], float] = {}
        books = cut.manager.books
        self.open: list[AppId] = [a for a, app in books.apps.items() if app.state in OPEN]
        seen = cut.seen
        later = [app for app, (_, arrival_s) in seen.jobs.items() if arrival_s > cut.now]
        again = jobs_again(seen, measured=False)
        jobs: list[Job] = [books.apps[app].job for app in self.open]
        jobs += [replace(again[app], arrival_s=seen.jobs[app][1] - cut.now) for app in later]
        if not jobs:
            last_s = max((end_s for _, end_s in seen.ended.values()), default=seen.until_s)
            last = f"the last ended at {last_s:.1f} s"
            raise InputError("--at", f"no job was there at that time, and none came later: {last}")
        own = ClusterSpec(books.types, tuple(seen.nodes.values()), books.queues.root)
        recorded = rest_of(seen, [*self.open, *later], cut.now, own_nodes=cluster is None)
        super().__init__(
            own,
            jobs,
            settings,
            cut.delays if delays is None else delays,
            Recorder(),
            recorded=recorded,
        )

    def _start(self) -> None:
        cut, engine = self._cut, self.engine
        engine.now = cut.now
        # No earlier submission has this token.
        self._client.token_prefix = f"after-{cut.now!r}-"
        self.manager = cut.manager
        books = self.manager.books
        # The numbers of later jobs are reserved.
        books.next_app = max(books.next_app, books.own_number(max(self.recorded.apps) + 1))
        self._manager_lives = 1
        self._idle.watch(self.manager.books)
        for where, core in cut.cores.items():
            self._take(where, core)
        for number, app in enumerate(self.open):
            self.recorder.accepted(self.recorder.jobs[number], app, cut.now)
        self._settle_processes()
        for where, timers in cut.timers.items():
            for key, due_s in timers.items():
                engine.set_timer_at(self.actors[where], key, max(due_s, cut.now))
        for one in cut.under_way:
            took_s = self.network.delays(one.source, one.to, "", "")[0]
            engine.at(max(cut.now, one.sent_s + took_s), self.actors[one.to], one.message)
        for where, (order, since_s) in cut.plans.items():
            took_s = self.delays.plans.get(where, self.delays.median("plan"))
            self.plan_after(self.actors[where], order, max(0.0, since_s + took_s - cut.now))
        if self._changed:
            self._exchange_policy()
        if self._wanted is not None:
            self._exchange_nodes(self._wanted)
        self.come_again()
        engine.soon(self._outside, Started())

    def _take(self, where: str, core: Core) -> None:
        """Take a rebuilt core over."""
        if isinstance(core, NodeManager):
            actor = Actor(where, core, core.node_id)
            self._node_of_master[where] = core.node_id
            self._idle.join(actor, core.node_id, core)
            self._boots[core.node_id] = 1
        else:
            actor = Actor(where, core)
            if isinstance(core, ApplicationMaster):
                self._idle.join(actor, core.attempt_id, core)
        self.actors[where] = actor

    def _settle_processes(self) -> None:
        """Give running masters their processes, and end tasks that are commands when they did."""
        cut = self._cut
        for number, running in cut.processes.items():
            node = self.actors[running.node]
            item = running.item
            if isinstance(item, TaskLaunch):
                self._go_on(number, node, item, running)
                continue
            address = master_address(item.attempt_id)
            master = self.actors.get(address)
            if master is not None:
                self._node_of_master[address] = node.name
                self._masters[number] = master
                self._launched[address] = number
            elif address in cut.begun:
                # It ended, and its node is about to notice.
                self.engine.soon(node, ProcessEnded(number, Outcome.SUCCEEDED, 0))
            else:
                self._launch(node, Launch(item), cut.now)

    # -- tasks that are commands -------------------------------------------------------------------

    def _launch(self, actor: Actor, effect: Launch, now: float) -> None:
        item = effect.item
        if isinstance(item, MasterLaunch):
            super()._launch(actor, effect, now)
            return
        for one in launches_of(item):
            self._end_at(now + self._took_s(one), actor, one)

    def _go_on(self, number: ContainerId, node: Actor, item: TaskLaunch, running: Running) -> None:
        end_s = self._cut.ends.get(number)
        if end_s is None:
            end_s = running.began_s + self._took_s(item)
        self._end_at(max(self._cut.now, end_s), node, item)

    def _end_at(self, end_s: float, node: Actor, item: TaskLaunch) -> None:
        self._starts += 1
        number, start = item.container_id, self._starts
        self._processes[number] = start

        def end() -> None:
            if self._processes.get(number) == start and node.alive:
                del self._processes[number]
                ended = ProcessEnded(
                    number, Outcome.SUCCEEDED, 0, "", (), item.stage, item.task, item.attempt
                )
                self.engine.soon(node, ended)

        self._fault_executor.later(max(0.0, end_s - self.engine.now), end)

    def _took_s(self, item: TaskLaunch) -> float:
        """Return what a command takes: what it took, else its stage's median, else the estimate."""
        app, run_s = app_of_container(item.container_id), self._cut.seen.run_s
        found = run_s.get((app, item.stage, item.task))
        if found is not None:
            return found
        key = (app, item.stage)
        if key not in self._usual:
            others = [took for (a, stage, _), took in run_s.items() if (a, stage) == key]
            self._usual[key] = median(others) if others else item.duration_s
        return self._usual[key]

    def _kill(self, actor: Actor, effect: Kill, now: float) -> None:
        if self._processes.pop(effect.container_id, None) is None:
            super()._kill(actor, effect, now)
            return
        self.engine.soon(actor, ProcessEnded(effect.container_id, Outcome.KILLED, -9))

    # -- what is changed ---------------------------------------------------------------------------

    def _exchange_policy(self) -> None:
        """Exchange the manager's policy and settings; what runs goes on."""
        was, chosen = self.manager.books.settings, self.settings.scheduler
        settings = replace(
            manager_settings(self.settings), prompt=was.prompt, recovery=was.recovery
        )
        matcher = make_matcher(chosen.matcher, chosen.matcher_options)
        self.manager.change_policy(matcher, settings, self._cut.now)

    def _exchange_nodes(self, wanted: ClusterSpec) -> None:
        """Add, remove or replace nodes."""
        types = wanted.types
        if types.names != self.cluster.types.names:
            has, had = ", ".join(types.names), ", ".join(self.cluster.types.names)
            raise InputError("--cluster", f"has {has}; the recorded one has {had}")
        there = {spec.node_id: spec for spec in self.cluster.nodes}
        keeps: set[str] = set()
        for spec in wanted.nodes:
            self._specs[spec.node_id] = spec
            before = there.get(spec.node_id)
            up = node_address(spec.node_id) in self.actors
            if (
                up
                and before is not None
                and (spec.capacity, spec.labels) == (before.capacity, before.labels)
            ):
                keeps.add(spec.node_id)
            elif up:
                self._fault_executor.later(BACK_S, partial(self.start_node, spec))
            else:
                self.start_node(spec)
                keeps.add(spec.node_id)
        for name in there:
            actor = self.actors.get(node_address(name))
            if actor is not None and name not in keeps:
                self.engine.soon(actor, StopRequested())


def compare(
    surveyed: Cut,
    tapes: Sequence[Tape],
    same: SimSettings,
    changed: SimSettings | None,
    cluster: ClusterSpec | None,
    delays: Delays | None = None,
) -> list[Jct]:
    """Return how jobs that were open or came later went on, and are simulated, same and changed.

    `changed` None: the policies stay; `cluster` None: the nodes stay; `delays` None: drawn from
    those before the cut. Raises InputError.
    """
    forked = ForkedSimulation(stand(surveyed, tapes), same, delays=delays)
    before = after = forked.run().jobs
    if changed is not None or cluster is not None:
        after = (
            ForkedSimulation(
                stand(surveyed, tapes),
                changed or same,
                scheduler_changed=changed is not None,
                cluster=cluster,
                delays=delays,
            )
            .run()
            .jobs
        )
    return compared(surveyed.seen, forked.recorded.apps, before, after)
