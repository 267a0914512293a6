"""How long does one node heartbeat take in the Resource Manager's core, and what is a plain loop?

A full cluster of 4 resource types has thousands of tasks pending by stage. One container ends, the
heartbeat that says so is handled whole: books, a full decision, grants. The baseline is figure 15
written task by task in plain Python, for one decision.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rm.core import ResourceManager
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.ids import attempt_id, attempt_of_container
from weft.model.job import Job, Stage
from weft.model.queues import DEFAULT_QUEUES
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.policies.presets import preset
from weft.protocol.effects import ClientRequested, Recovered, Send
from weft.protocol.event_unions import ManagerTold
from weft.protocol.messages import (
    Ask,
    AskType,
    AttemptRegistered,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    containers_of,
)
from weft.protocol.requests import SubmitApplication
from weft.wire import rules

CAPACITY = {"vcores": 16.0, "memory_mb": 65536.0, "disk_mbps": 800.0, "network_mbps": 1000.0}
STAGES_PER_JOB = 10
# Heartbeats in a row for one matcher, and those before them that do not count.
BLOCK, WARM_UP = 60, 10
Row = dict[str, object]


class LoadedManager:
    """A Resource Manager whose nodes are full and whose stages wait."""

    def __init__(
        self, matcher: str, stages: int, tasks: int, nodes: int, seed: int = 1, spare: bool = False
    ) -> None:
        # Every second stage asks ALTRUISTIC, as Carbyne's masters do.
        self.spare = spare
        # Heartbeats pass the rules that the manager's gate holds.
        self.checked = False
        self.rng = np.random.default_rng(seed)
        self.manager = ResourceManager(
            0,
            DEFAULT_RESOURCE_TYPES,
            DEFAULT_QUEUES,
            make_matcher(matcher),
            ManagerSettings(),
            np.random.default_rng(seed),
        )
        self.now = 0.0
        self.requests: dict[int, int] = {}
        self.asks: dict[tuple[int, int], Ask] = {}
        self.tasks = tasks
        self.beats = [0] * nodes
        self.held: dict[str, list[int]] = {}
        self.granted: dict[int, int] = {}
        self.handle(Recovered())
        for node in range(nodes):
            self.handle(NodeRegistered(f"n{node}", "", "r1", (), CAPACITY))
        self.jobs = stages // STAGES_PER_JOB
        for number in range(1, self.jobs + 1):
            job = Job(f"j{number}", tuple(Stage(f"s{i}", tasks, 10.0, {}) for i in range(10)))
            self.handle(ClientRequested(f"t{number}", SubmitApplication(job, f"s{number}")))
        while self.manager.books.waiting:
            for node in range(nodes):
                self.beat(node)

    def handle(self, event: ManagerTold) -> list[Any]:
        """Hand an event in and note what was granted."""
        effects = self.manager.handle(event, self.now)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, ContainersGranted):
                for container in containers_of(effect.message.containers):
                    self.held.setdefault(container.node_id, []).append(container.container_id)
                    self.granted[container.container_id] = container.ask_id
        return effects

    def beat(self, node: int, *ends: ContainerEnd) -> tuple[float, float]:
        """Handle one heartbeat; return what it took, s: on the wall, and of the processor."""
        self.beats[node] += 1
        event = NodeHeartbeated(f"n{node}", self.beats[node], (self.beats[node] - 1,), ends)
        wall, cpu = time.perf_counter(), time.thread_time()
        if self.checked:
            # The endpoint of nodes checks heartbeats in the same way.
            rules.problem_of(event, len(DEFAULT_RESOURCE_TYPES))
        self.manager.handle(event, self.now)
        return time.perf_counter() - wall, time.thread_time() - cpu

    def free_one(self, turn: int) -> tuple[float, float] | None:
        """Handle a heartbeat with the end of a container of some node: a full decision."""
        node = int(self.rng.integers(len(self.beats)))
        held = self.held[f"n{node}"]
        if not held:
            return None
        container = held.pop(int(self.rng.integers(len(held))))
        self.now += 0.01
        took = self.beat(node, ContainerEnd(container, Outcome.SUCCEEDED, 0, 0, turn))
        if turn % 20 == 19:
            self.collect()
            self.refill()
        return took

    def ask_all(self) -> None:
        """Have every master ask for all of its stages."""
        for number in range(1, self.jobs + 1):
            attempt = attempt_id(number, 1)
            self.handle(AttemptRegistered(attempt))
            asks = []
            for i in range(STAGES_PER_JOB):
                demand = self.rng.uniform(0.02, 0.2, 4) * list(CAPACITY.values())
                duration, pri = float(self.rng.uniform(1, 60)), 1.0 - i / STAGES_PER_JOB
                kind = AskType.ALTRUISTIC if self.spare and i % 2 else AskType.DEFAULT
                asks.append(Ask(i + 1, self.tasks, tuple(demand), duration, pri, kind, i))
                self.asks[attempt, i + 1] = asks[-1]
            self.send_asks(attempt, tuple(asks))

    def send_asks(self, attempt: int, asks: tuple[Ask, ...]) -> None:
        """Handle one `allocate` call with the remaining work of the job."""
        self.requests[attempt] = self.requests.get(attempt, 0) + 1
        work = float(self.rng.uniform(1, 100))
        number = self.requests[attempt]
        acks = tuple(range(max(1, number - 2), number))
        self.handle(ContainersAsked(attempt, number, acks, asks, (), 0.0, work))

    def collect(self) -> None:
        """Have every master take its grants."""
        for number in range(1, self.jobs + 1):
            self.send_asks(attempt_id(number, 1), ())

    def refill(self) -> None:
        """Ask again for what was granted, so that as much is pending as before."""
        again: dict[tuple[int, int], int] = {}
        for container, ask in self.granted.items():
            key = (attempt_of_container(container), ask)
            again[key] = again.get(key, 0) + 1
        self.granted.clear()
        for (attempt, ask), count in again.items():
            known = self.asks[attempt, ask]
            self.asks[attempt, ask] = replace(known, total=known.total + count)
            self.send_asks(attempt, (self.asks[attempt, ask],))


MATCHERS = ("graphene", "tetris", "carbyne", "drf", "sjf", "fair", "capacity", "fifo")
# As Carbyne's masters ask, in two phases.
HALF = "carbyne, half ALTRUISTIC"
# The first takes longest to decide, the second shortest.
CHECKED = ("graphene", "fifo")
CHECKED_TIME_RATIO_MAX = 1.05
# Carbyne, section 5.2.4, adds 2 ms to the 18 ms of Tetris, 4 ms at 50,000 tasks.
CARBYNE_TO_TETRIS_TIME_MAX = 1.25
GANGS_TIME_RATIO_MAX = 2.0


def run(quick: bool = False) -> list[Row]:
    """Return all cases; `quick` leaves the large ones out."""
    rows: list[Row] = []
    for stages, tasks in [(500, 20)] if quick else [(500, 20), (2500, 20)]:
        rows += heartbeat_costs(stages, tasks, 120 if quick else 360)
    rows += [checked_beside_none(name, 500, 20, 240 if quick else 1200) for name in CHECKED]
    rows.append(plain_loop(500, 20, rows[0]))
    rows.append(idle_heartbeats(1000 if quick else 10_000))
    rows.append(placements("graphene", 20 if quick else 200))
    rows.append(placements("capacity", 20 if quick else 200))
    rows.append(gangs_beside_none(64 if quick else 512))
    return rows


def gangs_beside_none(count: int) -> Row:
    """Measure the CPU time of runs with so many gangs at once on as many nodes, over plain tasks'.

    Each is eight tasks of a node each, under `capacity`.
    """
    cluster = cluster_from_text(f"{count}x16vcores,65536memory_mb")
    need = {"vcores": 12.0, "memory_mb": 50_000.0}
    used = {}
    for small, gang in ((True, True), (True, False), (False, True), (False, False)):
        stages = [
            Stage("s", 8, 60.0 + i % 7, need, gang=gang) for i in range(8 if small else count)
        ]
        jobs = [Job(f"j{i}", (stage,)) for i, stage in enumerate(stages)]
        began_s = time.process_time()
        Simulation(cluster, jobs, SimSettings(preset("capacity"), seed=1)).run()
        used[gang] = time.process_time() - began_s
    return {
        "case": f"{count} gangs of 8 on {count} nodes, over plain tasks (CPU time)",
        "pending": 8 * count,
        "stages": count,
        "cpu_ms": round(used[True] / (8 * count) * 1e3, 4),
        "without": round(used[False] / (8 * count) * 1e3, 4),
        "ratio": round(used[True] / used[False], 3),
        "target": GANGS_TIME_RATIO_MAX,
    }


def heartbeat_costs(stages: int, tasks: int, rounds: int = 300) -> list[Row]:
    """Measure a heartbeat that frees one container: median, 99th percentile, by matcher.

    The matchers take turns block by block, so that a machine that is busy elsewhere is busy for all
    of them; the first beats of a block, which find the caches cold, are not counted.
    """
    every = {name: _filled(name, stages, tasks) for name in MATCHERS}
    every[HALF] = _filled("carbyne", stages, tasks, spare=True)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in every}
    for block in range(rounds // BLOCK):
        for name, loaded in every.items():
            found = [loaded.free_one(block * BLOCK + turn) for turn in range(BLOCK)]
            took[name] += [each for each in found[WARM_UP:] if each is not None]
    rows: list[Row] = []
    for name, loaded in every.items():
        loaded.manager.check()
        wall, cpu = np.array(took[name]).T * 1e3
        rows.append(
            {
                "case": f"heartbeat, {name}",
                "pending": stages * tasks,
                "stages": stages,
                "median_ms": round(float(np.median(wall)), 4),
                "p99_ms": round(float(np.percentile(wall, 99)), 4),
                "cpu_ms": round(float(np.median(cpu)), 4),
            }
        )
    used = {name: float(np.median(np.array(took[name])[:, 1])) for name in every}
    for name in ("carbyne", HALF):
        rows.append(
            {
                "case": f"{name}, over tetris (CPU time)",
                "pending": stages * tasks,
                "stages": stages,
                "ratio": round(used[name] / used["tetris"], 2),
                "target": CARBYNE_TO_TETRIS_TIME_MAX,
            }
        )
    return rows


def checked_beside_none(matcher: str, stages: int, tasks: int, rounds: int) -> Row:
    """Measure what the rules cost of such a heartbeat: every second one is checked."""
    loaded = _filled(matcher, stages, tasks)
    took: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(rounds):
        # Strict alternation would keep step with refills.
        loaded.checked = bool(loaded.rng.integers(2))
        found = loaded.free_one(turn)
        if found is not None and turn >= WARM_UP:
            took[loaded.checked].append(found[1] * 1e3)
    median = {checked: float(np.median(times)) for checked, times in took.items()}
    return {
        "case": f"heartbeat, {matcher}, validation beside none (CPU time)",
        "pending": stages * tasks,
        "stages": stages,
        "cpu_ms": round(median[True], 4),
        "without": round(median[False], 4),
        "ratio": round(median[True] / median[False], 3),
        "target": CHECKED_TIME_RATIO_MAX,
    }


def _filled(matcher: str, stages: int, tasks: int, spare: bool = False) -> LoadedManager:
    """Return a full cluster of 100 nodes on which `stages` x `tasks` tasks are pending."""
    loaded = LoadedManager(matcher, stages, tasks, nodes=100, spare=spare)
    loaded.ask_all()
    for _ in range(3):
        for node in range(100):
            loaded.beat(node)
        loaded.collect()
    loaded.refill()
    return loaded


def plain_loop(stages: int, tasks: int, ours: Row) -> Row:
    """Measure figure 15 task by task in plain Python, for one decision that places one task."""
    rng = np.random.default_rng(1)
    free = [0.15, 0.15, 0.15, 0.15]
    every = [
        (rng.uniform(0.02, 0.2, 4).tolist(), float(rng.uniform(1, 60)), 1.0 - s % 10 / 10, s // 10)
        for s in range(stages)
        for _ in range(tasks)
    ]

    def decide() -> int:
        work = [0.0] * (stages // 10)
        for demand, duration, _, job in every:
            work[job] += duration * sum(demand)
        scores = []
        for demand, _, pri, _job in every:
            if all(d <= f for d, f in zip(demand, free, strict=True)):
                scores.append(pri * sum(d * f for d, f in zip(demand, free, strict=True)))
        eta = 0.2 * (sum(scores) / max(len(scores), 1)) / (sum(work) / len(work))
        best, best_score = -1, float("-inf")
        for number, (demand, _, pri, job) in enumerate(every):
            if all(d <= f for d, f in zip(demand, free, strict=True)):
                score = pri * sum(d * f for d, f in zip(demand, free, strict=True))
                score -= eta * work[job]
                if score > best_score:
                    best, best_score = number, score
        return best

    took = statistics.median(_timed(decide, 5))
    median = ours["median_ms"]
    assert isinstance(median, float)
    return {
        "case": "plain loop over tasks",
        "pending": stages * tasks,
        "stages": stages,
        "median_ms": round(took * 1e3, 3),
        "times_slower": round(took * 1e3 / median, 1),
    }


def idle_heartbeats(nodes: int) -> Row:
    """Measure heartbeats of a full cluster that change nothing: s of one core per second."""
    loaded = LoadedManager("graphene", 500, max(2, nodes // 50), nodes)
    loaded.ask_all()
    for node in range(nodes):
        loaded.beat(node)
    loaded.collect()
    took = []
    for _ in range(5):
        loaded.now += 1.0
        took.append(sum(loaded.beat(node)[1] for node in range(nodes)))
    return {
        "case": f"{nodes} full nodes x 1 heartbeat/s, nothing new",
        "pending": int(loaded.manager.books.ledger.by_queue.pending[0]),
        "stages": 500,
        "core_share": round(statistics.median(took), 4),
        "cpu_ms": round(statistics.median(took) / nodes * 1e3, 5),
    }


def placements(matcher: str, nodes: int) -> Row:
    """Measure placements per second of an empty cluster that fills up, with ledger and grants.

    A small cluster is filled first: what is compiled or loaded on first use is not counted.
    """
    _fill(matcher, 20)
    took, placed = _fill(matcher, nodes)
    return {
        "case": f"filling {nodes} nodes, {matcher}",
        "pending": 100_000,
        "stages": 500,
        "placements_per_s": round(placed / took[0]),
        "placements_per_cpu_s": round(placed / took[1]),
    }


def _fill(matcher: str, nodes: int) -> tuple[tuple[float, float], int]:
    """Fill an empty cluster; returns what it took (wall, CPU), s, and how many were placed."""
    loaded = LoadedManager(matcher, 500, 200, nodes)
    loaded.ask_all()
    before = len(loaded.manager.books.holdings)
    wall, cpu = np.sum([loaded.beat(node) for node in range(nodes)], axis=0)
    placed = len(loaded.manager.books.holdings) - before
    return (float(wall), float(cpu)), placed


def _timed(call: Callable[[], object], times: int) -> Iterator[float]:
    for _ in range(times):
        start = time.perf_counter()
        call()
        yield time.perf_counter() - start
