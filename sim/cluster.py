"""The composition root: the very same cores and registries as the services, in virtual time."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.plan.machines import machines_of
from am.plan.registry import QUICK, PlanRequest, planned, planner_parameters
from am.plan.reuse import PlanShelf, structure_key
from nm.core import HEARTBEAT, NodeManager
from nm.settings import NodeSettings
from rm.core import LIVENESS_TIMER, ResourceManager
from rm.match.registry import make_matcher
from rm.report.explain import application as explanation
from rm.state.lifecycle import LEAVING
from sim.checkers import Checkers
from sim.client import Client
from sim.engine import Actor, Engine
from sim.fault_executor import OPERATOR, FaultExecutor
from sim.heartbeat_elision import AT_END, HeartbeatElision
from sim.network import Network
from sim.process_faults import Die
from sim.recorder import JobRow, Recorder
from sim.settings import SimSettings, manager_settings, master_settings
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.dag import Dag, Machines, dag_of_job
from weft.model.errors import InputError, WeftError
from weft.model.ids import AppId, ContainerId, NodeId, app_of_container
from weft.model.job import Job
from weft.model.json_types import Table
from weft.model.plan import Plan
from weft.model.queues import QueueSpec
from weft.protocol.access import TRUSTED
from weft.protocol.effects import (
    Clean,
    Kill,
    Launch,
    MakePlan,
    Note,
    Persist,
    PlanReady,
    ProcessEnded,
    Recovered,
    Send,
    SetTimer,
    Started,
    Stop,
)
from weft.protocol.facts import Fact, facts_of
from weft.protocol.messages import (
    MANAGER,
    Address,
    MasterLaunch,
    Outcome,
    client_address,
    master_address,
    node_address,
)

STILL_S = 3600.0  # in which nothing happened: is there anything that still can?


class Simulation:
    """One run. `run` drives it to the end of the last job; `recorder` knows what happened."""

    __slots__ = (
        "_boots",
        "_checks",
        "_client",
        "_fault_executor",
        "_idle",
        "_launched",
        "_listeners",
        "_lossless",
        "_machines",
        "_manager_lives",
        "_master_settings",
        "_masters",
        "_node_of_master",
        "_node_settings",
        "_outside",
        "_plans",
        "_rare",
        "_records",
        "_shelf",
        "_specs",
        "_taps",
        "_unchecked",
        "actors",
        "checkers",
        "cluster",
        "engine",
        "manager",
        "network",
        "recorder",
        "settings",
        "stuck",
        "watchers",
    )

    def __init__(
        self,
        cluster: ClusterSpec,
        jobs: Sequence[Job],
        settings: SimSettings,
        recorder: Recorder | None = None,
    ) -> None:
        if not jobs:
            raise InputError("workload", "holds no job")
        self.cluster = cluster
        self.settings = settings
        self.engine = self._make_engine()
        self.engine.events_max = settings.events_max
        self.recorder = recorder or Recorder()
        # They hear of every fact beside the recorder.
        self.watchers: list[Callable[[float, Fact], None]] = []
        self.network = self._make_network()
        self.actors: dict[Address, Actor] = {}
        # They hear of every message.
        self._taps: list[Callable[[Address, object], None]] = []
        skip = settings.skip_idle and not self._lossy
        self._idle = HeartbeatElision(self.engine, self._hand_over, skip=skip)
        if skip:
            idle = self._idle
            self.engine.left_out = {
                HEARTBEAT: idle.leaves_out,
                LIVENESS_TIMER: idle.seen,
                AT_END: idle.ends,
            }
        # beats that are left out are not answered, which is no reason to stand still
        self._node_settings = settings.node
        if skip:
            self._node_settings = replace(settings.node, lease=False, lossless=True)
        self._lossless = skip
        self._master_settings = master_settings(settings, lossless=skip)
        self._specs = {spec.node_id: spec for spec in cluster.nodes}
        self._node_of_master: dict[Address, NodeId] = {}
        self._masters: dict[ContainerId, Actor] = {}
        self._launched: dict[Address, ContainerId] = {}
        self._records: list[Table] = []
        self._plans: dict[Hashable, Plan] = {}
        self._shelf = PlanShelf()
        self._machines: tuple[object, Machines] = ((), Machines(np.zeros((0, len(cluster.types)))))
        self._manager_lives = 0
        self._boots: dict[NodeId, int] = {}
        self._rare: dict[type, Callable[[Actor, Any, float], None]] = {
            MakePlan: self._make_plan,
            Launch: self._launch,
            Kill: self._kill,
            # Simulated hosts have no files.
            Clean: lambda actor, effect, now: None,
            Persist: self._persist,
            Stop: self._stopped,
            Die: lambda actor, effect, now: effect.act(),
        }
        self._client = self._make_client(jobs)
        self._outside = Actor("client", self._client)
        self._fault_executor = FaultExecutor(self, settings.faults)
        chosen = settings.scheduler
        if chosen.planner:
            # An unknown name or parameter is bad input.
            planner_parameters(chosen.planner, chosen.planner_options)
        asker(settings.scheduler.asker, settings.scheduler.asker_options)
        self.recorder.on_done = self.engine.stop
        self._listeners = self.recorder.listeners()
        self._checks, self._unchecked = settings.checks, 0
        self.checkers: Checkers | None = None
        if settings.checks:
            self.checkers = Checkers(cluster, self._job_of, strict=not self._lossy)
            self.watchers.append(self.checkers.note)
        self.stuck = ""  # why nothing can happen any more, where a run ended for that
        self._start()

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> Recorder:
        """Drive to the end of the last job, to `until_s`, or until nothing can happen any more."""
        until_s, before = self.settings.until_s, self.stood_still()
        while not self.stuck:
            limit_s = min(until_s, self.engine.now + STILL_S)
            self.engine.run(self._hand_over, limit_s)
            if self.engine.now < limit_s or limit_s >= until_s or not self.recorder.open_jobs:
                break
            before = self.stood_still(before)
        self.finish(self.recorder.jobs)
        return self.recorder

    def finish(self, rows: Iterable[JobRow]) -> None:
        """Hold what the checkers saw against the ends of the jobs that ran here."""
        if self.checkers is not None:
            self.checkers.finish((row.app, row.state) for row in rows if row.end != "FAILED")

    def stood_still(self, before: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return what has happened; if that is what it was before, note why nothing more can."""
        seen = self._seen()
        if seen == before:
            self.stuck = self._waiting_for()
        return seen

    def _seen(self) -> tuple[int, ...]:
        """Return what changes whenever anything happens that jobs could wait for."""
        books = self.manager.books
        granted = sum(len(app.attempts) for app in books.apps.values())
        numbers = [one.next_number for app in books.apps.values() for one in app.attempts]
        return self.recorder.open_jobs, books.next_app, granted, sum(numbers), len(books.holdings)

    def _waiting_for(self) -> str:
        """Return why nothing can happen any more, empty: something may.

        Only masters run, every job came, and nothing breaks or is repaired later. Where links are
        bad for ever, whatever a message was lost for came to pass in so long a time.
        """
        books, rows = self.manager.books, self.recorder.jobs
        only_masters = len(books.holdings) == int(books.ledger.by_queue.masters[0])
        ends = any(app.expires_s < inf for app in books.apps.values())
        coming = any(not row.app and row.finish_s < 0 for row in rows)
        script, still_s = self.settings.faults.script, self.engine.now - STILL_S
        breaks = any(fault.at_s + fault.for_s >= still_s for fault in script)
        if not (only_masters and books.anything_waits) or ends or coming or breaks:
            return ""
        waits = [app for app in books.app_at if app is not None]
        said = [explanation(books, app, TRUSTED) for app in waits[:1]]
        why = next((reason for one in said for stage in one.stages for reason in stage.reasons), "")
        if not books.ledger.nodes.up[: books.ledger.node_count].any():
            why = "no node is in service"
        names = ", ".join(repr(app.job.name) for app in waits[:3])
        return f"nothing can happen any more: {names} wait" + (f" ({why})" if why else "")

    def listen(self, tap: Callable[[Address, object], None]) -> None:
        """Call `tap(to, message)` for every message, whatever becomes of it."""
        self._taps.append(tap)
        self.network.watch(True)

    @property
    def waited(self) -> Mapping[NodeId, float]:
        """Time when the newest report of a node came to a manager that stood still, s."""
        return self._fault_executor.waited

    @property
    def out_of_service(self) -> Collection[NodeId]:
        """The nodes whose leaving was reported to the operator."""
        return self._fault_executor.out_of_service

    @property
    def epoch(self) -> int:
        """Number of times that the Resource Manager started before it did last."""
        return self.manager.books.epoch

    def leaves(self, node: NodeId) -> bool:
        """Return whether the manager has taken a node out of service, or is about to."""
        known = self.manager.books.nodes.get(node)
        return known is not None and known.state in LEAVING

    def has_queues(self, queues: QueueSpec) -> bool:
        """Return whether these are the manager's queues."""
        return self.manager.books.queues.root == queues

    @property
    def now_s(self) -> float:
        """Return the virtual time, s."""
        return self.engine.now

    @property
    def events(self) -> int:
        """Return how many events there were."""
        return self.engine.events

    def go_on(self, until_s: float) -> None:
        """Run on after the end of the last job."""
        self.engine.run(self._hand_over, until_s)

    def mend(self) -> None:
        """Bring back whatever is away."""
        self.start_manager()
        for spec in self.cluster.nodes:
            self._fault_executor.back(spec.node_id)

    def _job_of(self, app: AppId) -> Job | None:
        row = self.recorder.by_app.get(app)
        if row is not None:
            return row.job
        # The application's client has not heard of it yet.
        known = self.manager.books.apps.get(app)
        return None if known is None else known.job

    @property
    def _lossy(self) -> bool:
        return bool(self.settings.faults.script) or not self.network.perfect

    def check(self) -> None:
        """Check every core's own invariants."""
        for actor in self.actors.values():
            if actor.alive:
                actor.core.check()  # type: ignore[attr-defined]

    def _hand_over(self, actor: Actor, event: object, now: float) -> None:
        """Let a core take an event in, and carry out its effects in order."""
        for effect in actor.handle(event, now):
            # Compiled code knows the effect's type after this comparison, but not after
            # `isinstance`.
            if type(effect) is Note:
                fact = effect.fact
                listen = self._listeners.get(type(fact))
                if listen is not None:
                    listen(now, fact)
                if self.watchers:
                    for one in facts_of(fact):
                        for watch in self.watchers:
                            watch(now, one)
            elif type(effect) is SetTimer:
                delay_s = effect.delay_s
                if delay_s is not None and effect.key == HEARTBEAT:
                    self._idle.arm(actor, delay_s)
                else:
                    self.engine.set_timer(actor, effect.key, delay_s)
            elif type(effect) is Send:
                target = self.actors.get(effect.to)
                if target is not None and self.network.perfect:
                    # This is `Engine.soon` without the call.
                    self.engine.ready.append((target, effect.message, 0))
                else:
                    self._send(actor, effect.to, effect.message, now)
            else:
                self._rare[type(effect)](actor, effect, now)
        if actor.suppressed:
            self._idle.heard(actor)
        if self._checks:
            self._check_one(actor)

    def _check_one(self, actor: Actor) -> None:
        self._unchecked += 1
        if self._unchecked >= self.settings.check_every and hasattr(actor.core, "check"):
            self._unchecked = 0
            actor.core.check()

    def _send(self, source: Actor, to: Address, message: object, now: float) -> None:
        target = self.actors.get(to)
        for tap in self._taps:
            tap(to, message)
        if target is None:
            if to == client_address(OPERATOR):
                self._fault_executor.operator_answered(message)
            elif to.startswith("client:"):
                self._client.answered(to, message, now)
            return
        if self.network.perfect:
            self.engine.soon(target, message)
            return
        hosts = self._node_of_master
        here, there = hosts.get(source.address, ""), hosts.get(to, "")
        for delay_s in self.network.delays(source.address, to, here, there):
            if delay_s:
                self.engine.at(now + delay_s, target, message)
            else:
                self.engine.soon(target, message)

    def _make_engine(self) -> Engine:
        return Engine()

    def _make_client(self, jobs: Sequence[Job]) -> Client:
        return Client(jobs, self.recorder, repeat=self._lossy)

    def _make_network(self) -> Network:
        return Network(self.settings.faults.network, self.settings.seed)

    # -- composition -------------------------------------------------------------------------------

    def _start(self) -> None:
        self.start_manager()
        for spec in self.cluster.nodes:
            self.start_node(spec)
        self.engine.soon(self._outside, Started())
        self.engine.soon(self._fault_executor.actor, Started())

    def start_manager(self) -> None:
        """Start (or restart) the Resource Manager from what it persisted."""
        if MANAGER in self.actors:
            # Two restarts that overlap are one.
            return
        self.network.manager_down(False)
        self._manager_lives += 1
        manager = self.make_manager(self._manager_lives)
        self.manager = manager
        manager.books.names_terms = self.recorder.log is not None
        self._idle.watch(manager.books)
        self.actors[MANAGER] = actor = Actor(MANAGER, manager)
        self._fault_executor.dress(actor, "")
        self.engine.soon(actor, Recovered(tuple(self._records)))
        self._fault_executor.give_order()

    def make_manager(self, life: int) -> ResourceManager:
        """Return a Resource Manager as the one of that life (from 1) was before its first event."""
        settings, scheduler = self.settings, self.settings.scheduler
        return ResourceManager(
            0,
            self.cluster.types,
            self.cluster.queues,
            make_matcher(scheduler.matcher, scheduler.matcher_options),
            manager_settings(settings, lossless=self._lossless),
            np.random.default_rng([settings.seed, 1, life]),
        )

    def start_node(self, spec: NodeSpec) -> None:
        """Start (or restart) a node, empty."""
        self.engine.soon(self._new_node(spec), Started())

    def _new_node(self, spec: NodeSpec) -> Actor:
        """Return a node's process, which has not begun."""
        boots = self._boots[spec.node_id] = self._boots.get(spec.node_id, 0) + 1
        number = len(self._boots) if boots == 1 else list(self._boots).index(spec.node_id) + 1
        node = NodeManager(
            spec.node_id,
            "",
            self.cluster.types.mapping(spec.capacity),
            spec.rack,
            spec.labels,
            self._settings_of(spec),
            np.random.default_rng([self.settings.seed, 2, number, boots]),
        )
        address = node_address(spec.node_id)
        self.actors[address] = actor = Actor(address, node, spec.node_id)
        self._fault_executor.dress(actor, spec.node_id)
        self._node_of_master[address] = spec.node_id
        self._idle.join(actor, spec.node_id, node)
        return actor

    def _settings_of(self, spec: NodeSpec) -> NodeSettings:
        """Return all nodes' settings with a node's own speed."""
        every = self._node_settings
        return every if spec.speed == 1.0 else replace(every, speed=every.speed * spec.speed)

    # -- effects -----------------------------------------------------------------------------------

    def _launch(self, actor: Actor, effect: Launch, now: float) -> None:
        item = effect.item
        assert isinstance(item, MasterLaunch), "emulated nodes launch masters only"
        self.engine.soon(self._new_master(actor, item), Started())

    def _new_master(self, actor: Actor, item: MasterLaunch) -> Actor:
        """Return a master's process on a node, which has not begun."""
        scheduler = self.settings.scheduler
        core = ApplicationMaster(
            item.attempt_id,
            self._master_settings,
            asker(scheduler.asker, scheduler.asker_options),
            np.random.default_rng([self.settings.seed, 3, item.attempt_id]),
        )
        address = master_address(item.attempt_id)
        master = Actor(address, core)
        self.actors[address] = master
        self._fault_executor.dress(master, actor.name)
        self._idle.join(master, item.attempt_id, core)
        self._node_of_master[address] = actor.name
        self._masters[item.container_id] = master
        self._launched[address] = item.container_id
        return master

    def _kill(self, actor: Actor, effect: Kill, now: float) -> None:
        self.end_master(effect.container_id, Outcome.KILLED)

    def _stopped(self, actor: Actor, effect: Stop, now: float) -> None:
        container = self._launched.get(actor.address)
        if container is not None:
            self.end_master(container, Outcome.SUCCEEDED)

    def end_master(self, container: ContainerId, outcome: Outcome) -> None:
        """End a master's process; its node notices."""
        master = self._masters.pop(container, None)
        if master is None:
            return
        self._forget(master)
        node = self.actors.get(node_address(self._node_of_master.pop(master.address)))
        if node is not None and node.alive:
            self.engine.soon(node, ProcessEnded(container, outcome, int(outcome)))

    def _forget(self, actor: Actor) -> None:
        actor.alive = False
        self._idle.leave(actor)
        self._launched.pop(actor.address, None)
        if self.actors.get(actor.address) is actor:
            del self.actors[actor.address]

    def _persist(self, actor: Actor, effect: Persist, now: float) -> None:
        self._records.append(effect.record)

    def _make_plan(self, actor: Actor, effect: MakePlan, now: float) -> None:
        """Plan at once, as planning takes no virtual time; equal requests share one plan.

        A job that recurs gets the plan that is kept; what a live master does in idle time, a plan
        for new estimates, is done right after.
        """
        self.engine.soon(actor, self._plan(effect))

    def _plan(self, effect: MakePlan) -> PlanReady:
        try:
            dag, machines = dag_of_job(effect.job, effect.types), self._machine_set(effect)
            name = effect.job.history_key if effect.planner not in QUICK else ""
            shelf_key = structure_key(name, dag, machines, effect.planner, effect.options)
            kept = self._shelf.find(shelf_key)
            digest = dag.digest()
            if kept is None or kept.digest != digest:
                plan = self._planned(effect, dag, digest, machines)
                self._shelf.keep(shelf_key, plan, digest)
            return PlanReady(plan if kept is None else kept.served)
        except WeftError as error:
            return PlanReady(None, str(error))

    def _planned(self, effect: MakePlan, dag: Dag, digest: str, machines: Machines) -> Plan:
        key = (
            effect.planner,
            digest,
            effect.machines,
            repr(sorted(effect.options.items())),
            effect.speeds,
        )
        plan = self._plans.get(key)
        if plan is None:
            rng = np.random.default_rng([self.settings.seed, 4, int(key[1][:12], 16)])
            request = PlanRequest(dag, machines, rng, effect.options)
            plan = self._plans[key] = planned(effect.planner, request)
        return plan

    def _machine_set(self, effect: MakePlan) -> Machines:
        """Return the machines that jobs are notified of: the same until a node comes or goes."""
        told = (effect.machines, effect.speeds)
        if self._machines[0] != told:
            self._machines = (told, machines_of(effect))
        return self._machines[1]

    # -- what breaks (`sim.fault_executor`)

    def crash_node(self, node: NodeId) -> None:
        """Remove a node and the masters on it."""
        actor = self.actors.get(node_address(node))
        if actor is None:
            return
        self._forget(actor)
        if self.checkers is not None:
            self.checkers.crashed(node)
        for container, master in list(self._masters.items()):
            if self._node_of_master.get(master.address) == node:
                del self._masters[container]
                del self._node_of_master[master.address]
                self._forget(master)

    def masters_of(self, number: int) -> list[tuple[ContainerId, Actor]]:
        """Return the masters that run of a job of the workload."""
        app = self.recorder.jobs[number].app
        return [(c, actor) for c, actor in self._masters.items() if app_of_container(c) == app]

    def actors_on(self, node: NodeId) -> list[Actor]:
        """Return a node's processes: its node manager and masters."""
        return [a for a in self.actors.values() if self._node_of_master.get(a.address) == node]

    def spec_of(self, node: NodeId) -> NodeSpec:
        """Return a node as the cluster's file describes it."""
        return self._specs[node]

    def node_cores(self) -> list[tuple[NodeId, NodeManager]]:
        """Return the node managers that are up."""
        found = ((n, self.actors.get(node_address(n))) for n in self._specs)
        return [(n, actor.core) for n, actor in found if actor is not None]  # type: ignore[misc]

    def stop_manager(self) -> None:
        """Remove the Resource Manager's process."""
        if self.checkers is not None:
            self.checkers.restarted()
        actor = self.actors.pop(MANAGER, None)
        if actor is not None:
            actor.alive = False
        self.network.manager_down(True)
