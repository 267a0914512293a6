"""Whatever is lost, doubled or late, the Resource Manager's books hold and every job ends.

A random walk over a small cluster: nodes that remember what they run, masters that ask as
`weft.protocol.messages` says, a network that loses, doubles and reorders, nodes and masters and the
manager itself that die and come back, and queues that change all the while. After every event
`check()`; and no node ever really runs more of a rigid resource than it has, counted on the nodes,
not in the manager's books.
"""

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest

from rm.core import ResourceManager
from rm.ledger.view import View
from rm.match.protocol import Match
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from sim.queue_cases import other_queues
from testkit.builders import TWO_TYPES, ask, job, stage
from testkit.matching import VIEWING
from weft.model.ids import attempt_of_container
from weft.model.job import Job
from weft.model.queues import QueueSpec
from weft.protocol.effects import ClientRequested, Persist, Recovered, Send, SetTimer, TimerFired
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    RunningContainer,
    TaskEnd,
    containers_of,
)
from weft.protocol.outbox import Outbox
from weft.protocol.requests import (
    ApplicationReport,
    GetApplication,
    KillApplication,
    QueuesSet,
    SetQueues,
    SubmitApplication,
)

QUEUES = QueueSpec(
    "root",
    children=(
        QueueSpec("a", 0.6, 1.0, user_limit=0.5),
        QueueSpec("b", 0.4, 0.8, children=(QueueSpec("x", 0.5), QueueSpec("y", 0.5, 0.9))),
    ),
)
MEMORY = 1
SEEDS = int(os.environ.get("WEFT_WALKS", "8"))  # more for a long search
CAPACITY = {"vcores": 4.0, "memory_mb": 4096.0}


class Twice:
    """A matcher that is asked everything twice: the same view must give the same answer."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self.matcher, name)

    def match(self, view: View, node: int, now: float) -> Match:
        first = self.matcher.match(view, node, now)
        assert self.matcher.match(view, node, now) == first
        return first


class Host:
    """A node as it really is."""

    def __init__(self, world: "World", name: str, rack: str) -> None:
        self.world, self.name, self.rack = world, name, rack
        self.up = False
        self.boot = 0
        self.start()

    def start(self) -> None:
        self.up, self.boot = True, self.boot + 1
        self.life = self.token = 0
        self.registered = False
        self.running: dict[int, tuple[tuple[float, ...], int, int]] = {}
        self.done: set[int] = set()
        self.acks: list[int] = []
        self.outbox: Outbox[int, ContainerEnd] = Outbox(2.0)

    def tick(self) -> None:
        if not self.up:
            return
        if not self.registered:
            carried = tuple(
                RunningContainer(c, d, ((s, t, 0),) if s >= 0 else ())
                for c, (d, s, t) in self.running.items()
            )
            self.world.to_manager(
                NodeRegistered(
                    self.name,
                    "",
                    self.rack,
                    (),
                    dict(CAPACITY),
                    carried,
                    self.boot,
                    self.life,
                    self.token,
                )
            )
            return
        number, ended = self.outbox.take(self.world.now)
        acks, self.acks = tuple(self.acks), []
        self.world.to_manager(NodeHeartbeated(self.name, number, acks, tuple(ended)))

    def hears(self, message: object) -> None:
        if not self.up:
            return
        if isinstance(message, NodeAccepted):
            self.registered = self.life in (0, message.life)
            self.life = message.life
        if isinstance(message, NodeAnswered):
            asked = message.resync and not (message.token and self.registered)
            if asked or message.life != self.life:
                self.registered, self.life = False, message.life
                self.token = message.token
            if message.resync or not self.registered:
                return
            if message.response_id:
                self.acks.append(message.response_id)
            self.outbox.acknowledge(message.acks)
            for launch in message.start:
                if self.run(launch.container_id, launch.demand, -1, -1):
                    self.world.master_up(launch.attempt_id, launch.container_id, self)
            for number in message.stop:
                self.end(number, Outcome.KILLED if number in self.running else Outcome.RELEASED)

    def run(self, number: int, demand: tuple[float, ...], stage: int, task: int) -> bool:
        if not self.up or number in self.running or number in self.done:
            return False
        held = sum(d[MEMORY] for d, _, _ in self.running.values())
        if held + demand[MEMORY] > CAPACITY["memory_mb"] + 1e-6:
            # only a start that was on its way while the manager restarted: nobody told the new one
            assert self.world.restarts, "over a rigid capacity"
            self.end(number, Outcome.FAILED)
            return False
        self.running[number] = (demand, stage, task)
        return True

    def end(self, number: int, outcome: Outcome) -> None:
        if number in self.done and number not in self.running:
            if outcome is Outcome.RELEASED:
                self.outbox.put(number, ContainerEnd(number, outcome))
            return
        _, stage, task = self.running.pop(number, ((), -1, -1))
        self.done.add(number)
        if outcome is Outcome.SUCCEEDED and stage >= 0:
            self.world.ran[attempt_of_container(number) >> 8, stage, task] += 1
        self.outbox.put(number, ContainerEnd(number, outcome, 0, stage, task, 0, 1.0))
        self.world.master_down(number)


class Master:
    """A master that runs the stages of its job as one, each task until it has succeeded."""

    def __init__(self, world: "World", attempt: int, container: int, host: Host) -> None:
        self.world, self.attempt, self.container, self.host = world, attempt, container, host
        self.accepted = self.finished = False
        self.job: Job | None = None
        self.epoch = 0
        self.forget_asks()
        self.done: set[tuple[int, int]] = set()
        self.known: set[int] = set()

    def forget_asks(self) -> None:
        self.acks: list[int] = []
        self.totals: Counter[int] = Counter()
        self.granted: Counter[int] = Counter()
        self.tasks: dict[int, tuple[int, int]] = {}
        self.orders: dict[int, tuple[str, Any]] = {}  # to nodes, repeated until the end is heard
        self.outbox: Outbox[int, Any] = Outbox(2.0)

    def left(self, position: int) -> list[tuple[int, int]]:
        assert self.job is not None
        busy = set(self.tasks.values())
        every = ((position, t) for t in range(self.job.stages[position].tasks))
        return [t for t in every if t not in self.done and t not in busy]

    def tick(self) -> None:
        world = self.world
        if self.finished:
            world.to_manager(AttemptFinished(self.attempt, True))
        elif not self.accepted:
            world.to_manager(AttemptRegistered(self.attempt))
        elif self.job is not None:
            for host, message in self.orders.values():
                if world.rng.random() < 0.2:
                    world.send(host, message)
            stages = range(len(self.job.stages))
            if all(
                len([d for d in self.done if d[0] == s]) == self.job.stages[s].tasks for s in stages
            ):
                self.finished = True
                return
            for s in stages:
                pending = self.totals[s] - self.granted[s]
                missing = len(self.left(s)) - pending
                if missing > 0:
                    self.totals[s] += missing
                    spec = self.job.stages[s]
                    wanted = ask(
                        s,
                        self.totals[s],
                        TWO_TYPES.vector(spec.demand),
                        stage=s,
                        nodes=spec.prefer.nodes,
                    )
                    self.outbox.put(s, wanted)
            number, asks = self.outbox.take(world.now)
            acks, self.acks = tuple(self.acks), []
            world.to_manager(
                ContainersAsked(
                    self.attempt,
                    number,
                    acks,
                    tuple(asks),
                    remaining_work=float(len(self.tasks)),
                    epoch=self.epoch,
                )
            )

    def hears(self, message: object) -> None:
        if isinstance(message, AttemptAccepted) and not self.accepted:
            self.accepted, self.job, self.epoch = True, message.job, message.epoch
            self.done |= {(f.stage, f.task) for f in message.finished}
        elif isinstance(message, ContainersGranted):
            if message.resync:
                if message.epoch == self.epoch:
                    return
                self.accepted = False
                self.totals.clear()
                self.granted.clear()
                self.outbox = Outbox(2.0)
                return
            if message.response_id:
                self.acks.append(message.response_id)
            self.outbox.acknowledge(message.acks)
            for container in containers_of(message.containers):
                self.start(container)
            for end in message.ended:
                self.orders.pop(end.container_id, None)
                task = self.tasks.pop(end.container_id, None)
                self.known.add(end.container_id)
                if task is not None and end.outcome is Outcome.SUCCEEDED:
                    self.done.add(task)
        elif isinstance(message, AttemptUnregistered) and self.finished:
            self.host.end(self.container, Outcome.SUCCEEDED)
        elif isinstance(message, AttemptStopped):
            self.host.end(self.container, Outcome.KILLED)

    def start(self, container: Container) -> None:
        if container.container_id in self.known or self.job is None:
            return
        self.known.add(container.container_id)
        self.granted[container.ask_id] += 1
        left = self.left(container.ask_id)
        host = self.world.hosts[container.node_id]
        if not left:  # not needed any more: give it back by way of the node
            self.order(container.container_id, host.name, ("stop", container.container_id))
            return
        task = left[0]
        self.tasks[container.container_id] = task
        demand = TWO_TYPES.vector(self.job.stages[task[0]].demand)
        self.order(
            container.container_id, host.name, ("start", container.container_id, demand, *task)
        )

    def order(self, number: int, host: str, message: Any) -> None:
        self.orders[number] = (host, message)
        self.world.send(host, message)


class World:
    """The network between them, and what goes wrong."""

    def __init__(self, seed: int, matcher: str, prompt: bool, faults: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.matcher, self.prompt, self.faults = matcher, prompt, faults
        self.now = 0.0
        self.records: list[Any] = []
        self.mail: list[tuple[str, Any]] = []
        self.ran: Counter[tuple[int, int, int]] = Counter()
        self.masters: dict[int, Master] = {}
        self.by_container: dict[int, int] = {}
        self.reports: dict[str, Any] = {}
        self.restarts, self.changes = -1, 0
        self.queues_change = False
        self.hosts = {f"n{i}": Host(self, f"n{i}", f"r{i % 2}") for i in range(4)}
        self.boot()

    def boot(self) -> None:
        self.manager = ResourceManager(
            1,
            TWO_TYPES,
            QUEUES,
            Twice(make_matcher(self.matcher)),
            ManagerSettings(
                prompt=self.prompt,
                node_expiry_s=20.0,
                master_expiry_s=25.0,
                master_demand={"vcores": 0.1, "memory_mb": 64.0},
                max_attempts=100,
            ),
            np.random.default_rng(0),
        )
        self.restarts += 1
        self.liveness_at = self.now + 1.0
        self.handle(Recovered(tuple(self.records)))

    def handle(self, event: object) -> None:
        effects = self.manager.handle(event, self.now)
        self.manager.check()
        for effect in effects:
            if isinstance(effect, Persist):
                self.records.append(effect.record)
            elif isinstance(effect, Send):
                self.send(effect.to, effect.message)
            elif isinstance(effect, SetTimer) and effect.delay_s is not None:
                if effect.delay_s == 0:
                    self.mail.append(("timer", TimerFired(effect.key)))
                else:
                    self.liveness_at = self.now + effect.delay_s

    def send(self, to: str, message: Any) -> None:
        copies = 1
        if self.faults and not to.startswith("client"):
            copies = int(self.rng.choice([0, 1, 2], p=[0.1, 0.8, 0.1]))
        self.mail.extend([(to, message)] * copies)

    def to_manager(self, message: object) -> None:
        self.send("rm", message)

    def master_up(self, attempt: int, container: int, host: Host) -> None:
        if attempt not in self.masters:
            self.masters[attempt] = Master(self, attempt, container, host)
            self.by_container[container] = attempt

    def master_down(self, container: int) -> None:
        attempt = self.by_container.pop(container, None)
        if attempt is not None:
            del self.masters[attempt]

    def deliver(self) -> None:
        """One message, the oldest or (with faults) any."""
        at = int(self.rng.integers(min(len(self.mail), 8))) if self.faults else 0
        to, message = self.mail.pop(at)
        if to in ("rm", "timer"):
            self.handle(message)
        elif to == "client:queues":
            assert isinstance(message, QueuesSet), message
            self.changes += 1
        elif to.startswith("client:"):
            self.reports[to] = message
        elif to.startswith("am:"):
            master = self.masters.get(int(to[3:]))
            if master is not None:
                master.hears(message)
        else:
            host = self.hosts[to.removeprefix("node:")]
            if isinstance(message, tuple) and message[0] in ("start", "stop"):
                if host.up and message[0] == "start":
                    host.run(*message[1:])
                elif host.up:
                    number = message[1]
                    running = number in host.running
                    host.end(number, Outcome.KILLED if running else Outcome.RELEASED)
            else:
                host.hears(message)

    def step(self) -> None:
        self.now += 0.25
        for host in self.hosts.values():
            for number, (_, s, _t) in list(host.running.items()):
                if s >= 0 and self.rng.random() < 0.2:
                    fails = self.faults and self.rng.random() < 0.05
                    host.end(number, Outcome.FAILED if fails else Outcome.SUCCEEDED)
            host.tick()
        for master in list(self.masters.values()):
            master.tick()
        if self.queues_change and self.rng.random() < 0.15:
            wanted = SetQueues(other_queues(self.rng, QUEUES))
            self.handle(ClientRequested("queues", wanted))
        if self.faults:
            self.break_something()
        for _ in range(int(self.rng.integers(0, 2 * len(self.mail) + 20))):
            if self.mail:
                self.deliver()
        if self.now >= self.liveness_at:
            self.liveness_at = self.now + 1.0
            self.handle(TimerFired("liveness"))

    def break_something(self) -> None:
        dice = self.rng.random()
        names = list(self.hosts)
        host = self.hosts[names[int(self.rng.integers(len(names)))]]
        if dice < 0.02 and host.up:
            for number in list(host.running):
                self.master_down(number)
            host.running.clear()
            host.up = False
        elif dice < 0.06 and not host.up:
            host.start()
        elif dice < 0.07 and self.masters:
            attempts = sorted(self.masters)
            master = self.masters[attempts[int(self.rng.integers(len(attempts)))]]
            master.host.end(master.container, Outcome.FAILED)
        elif dice < 0.075:
            self.mail = [m for m in self.mail if m[0] not in ("rm", "timer")]
            self.boot()

    def state_of(self, app: int) -> ApplicationReport:
        self.handle(ClientRequested("state", GetApplication(app)))
        while "client:state" not in self.reports:
            self.deliver()
        answer = self.reports.pop("client:state")
        assert isinstance(answer, ApplicationReport)
        return answer


def some_job(rng: np.random.Generator, number: int) -> Job:
    stages = tuple(
        stage(
            f"s{i}",
            int(rng.integers(1, 8)),
            demand={
                "vcores": float(rng.choice([0.5, 1.0, 2.0])),
                "memory_mb": float(rng.choice([256, 1024, 2048])),
            },
        )
        for i in range(int(rng.integers(1, 4)))
    )
    queue = str(rng.choice(["a", "root.b.x", "y"]))
    return job(f"j{number}", *stages, queue=queue, user=str(rng.choice(["u", "v"])))


def run(seed: int, matcher: str, prompt: bool, faults: bool, steps: int) -> World:
    world = World(seed, matcher, prompt, faults)
    world.queues_change = True
    for number in range(1, 6):
        request = SubmitApplication(some_job(world.rng, number), f"s{number}")
        world.handle(ClientRequested(f"c{number}", request))
        for _ in range(int(world.rng.integers(1, 5))):
            world.step()
    for _ in range(steps):
        world.step()
    world.faults = False
    for host in world.hosts.values():
        if not host.up:
            host.start()
    for _ in range(1500):
        world.step()
        if all(world.state_of(n).state in ("FINISHED", "KILLED") for n in range(1, 6)):
            break
    return world


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [False, True], ids=["yarn", "prompt"])
@pytest.mark.parametrize("matcher", VIEWING)
def test_no_job_starves_and_each_task_runs_once_when_nothing_is_lost(
    matcher: str, prompt: bool
) -> None:
    world = run(3, matcher, prompt, faults=False, steps=50)
    for number in range(1, 6):
        report = world.state_of(number)
        assert (report.state, report.final_status) == ("FINISHED", "SUCCEEDED")
        assert report.finished_tasks == report.tasks
    assert set(world.ran.values()) == {1}
    assert world.changes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("matcher", ["fifo", "capacity"])
def test_jobs_end_whatever_is_lost_doubled_late_or_killed(matcher: str, seed: int) -> None:
    world = run(seed, matcher, prompt=seed % 2 == 0, faults=True, steps=150)
    for number in range(1, 6):
        report = world.state_of(number)
        assert (report.state, report.final_status) == ("FINISHED", "SUCCEEDED"), report


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_job_gives_everything_back(seed: int) -> None:
    world = World(seed, "capacity", prompt=True, faults=True)
    request = SubmitApplication(some_job(world.rng, 1), "s")
    world.handle(ClientRequested("c", request))
    for _ in range(10 + seed * 5):
        world.step()
    world.handle(ClientRequested("k", KillApplication(1)))
    world.faults = False
    for host in world.hosts.values():
        if not host.up:
            host.start()
    for _ in range(200):
        world.step()
    assert world.state_of(1).state in ("KILLED", "FINISHED")
    assert not world.manager.books.holdings
    assert not world.manager.books.rows.live


def test_task_ends_inside_reusable_containers_are_journalled() -> None:
    world = World(1, "fifo", prompt=False, faults=False)
    world.handle(ClientRequested("c", SubmitApplication(job("j", stage(tasks=3), queue="a"), "s")))
    for _ in range(12):
        world.step()
        if world.ran:
            break
    books = world.manager.books
    master = books.apps[1].attempt.master
    number, held = next(
        (number, one) for number, one in books.holdings.by_id.items() if one is not master
    )
    done = TaskEnd(number, 0, 2, 0, Outcome.SUCCEEDED, 0, 1.0)
    world.handle(NodeHeartbeated(held.node.node_id, 10_000, tasks_ended=(done,)))
    assert 2 in books.apps[1].finished[0]


@pytest.mark.slow
@pytest.mark.parametrize("matcher", VIEWING)
def test_no_job_starves_under_a_stream_of_others(matcher: str) -> None:
    """Near the cluster's capacity; a job that waits for the stream to end would wait over 100 s."""
    world = World(5, matcher, prompt=True, faults=False)
    count = 80
    for number in range(1, count + 1):
        request = SubmitApplication(some_job(world.rng, number), f"s{number}")
        world.handle(ClientRequested(f"c{number}", request))
        for _ in range(6):
            world.step()
    for _ in range(160):
        world.step()
    reports = [world.state_of(number) for number in range(1, count + 1)]
    assert {report.final_status for report in reports} == {"SUCCEEDED"}
    assert max(report.finished_s - report.submitted_s for report in reports) < 60.0
