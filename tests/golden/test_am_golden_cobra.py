"""Worked examples of Af, Pdelay and COBRA's figure 2, the last through whole masters."""

import heapq
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from am.ask.af import AfSettings, next_desire, request_of
from am.ask.all_ready import AllReady
from am.ask.cobra import Cobra
from am.ask.disposable import Disposable
from am.ask.pdelay import Spot, Waiting, assign
from am.ask.registry import Asker, HoldAsker
from am.ask.static import Static
from am.core import ApplicationMaster
from am.settings import MasterSettings
from testkit.examples import Table, examples, reading
from testkit.master import accepted
from weft.model.ids import AttemptId, attempt_id, container_id
from weft.model.job import Edge, Job, Stage
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol.effects import Send, SetTimer, Started, TimerFired
from weft.protocol.messages import (
    Ask,
    AttemptFinished,
    AttemptRegistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    Outcome,
    StartContainers,
    TaskEnd,
    TasksEnded,
)


@examples("cobra_af")
def test_af(case: dict[str, Any]) -> None:
    """The desire of every period, which of the three cases decided, and what is asked for."""
    with reading(case) as (given, expected, tolerance):
        whole = bool(given.get("rounding", False))
        chosen = AfSettings(given["rho"], given["delta"])
        most = next((given[k] for k in ("cap", "max") if k in given), float("inf"))
        desires, cases = [1.0], []
        for period in given["periods"]:
            desire, name = next_desire(
                desires[-1], period["a"], period["u"], period["waiting"], chosen, most, whole
            )
            desires.append(desire)
            cases.append(name)
        assert desires == pytest.approx(expected["desires"], abs=tolerance["abs"])
        assert min(desires) >= given.get("floor", 1.0)
        if "cases" in expected:
            assert cases == expected["cases"]
        if "requests" in expected:
            assert [request_of(desire) for desire in desires] == expected["requests"]


@examples("cobra_pdelay")
def test_pdelay(case: dict[str, Any]) -> None:
    """Which tasks a free container gets, and how near their input is; their order is open."""
    with reading(case) as (given, expected, tolerance):
        tasks = [
            Waiting(
                number,
                tuple(t["r"]),
                given["tau"] * t["p"],
                t["wait"],
                tuple(t.get("nodes", ())),
                tuple(t.get("racks", ())),
            )
            for number, t in enumerate(given["tasks"])
        ]
        ids = [t["id"] for t in given["tasks"]]
        spot = Spot(given["node"], given["rack"], tuple(given["free"]))
        chosen, free = assign(spot, tasks, {task.key: task.tasks for task in tasks}, given["delta"])
        found = {ids[key]: level for key, level in chosen}
        assert found == dict(zip(expected["assigned"], expected["level"], strict=True))
        assert list(free) == pytest.approx(expected["free"], abs=tolerance["abs"])


class Cluster:
    """Figure 2's cluster: capacity for so many containers.

    Each is granted `response` s after it is both asked for and free (at once at time 0); fair by
    containers held, ties to the earlier job.
    """

    def __init__(self, capacity: float, response_s: float) -> None:
        self.free = capacity
        self.response_s = response_s
        self.now = 0.0
        self.masters: dict[AttemptId, ApplicationMaster] = {}
        self.done: dict[AttemptId, float] = {}
        self._jobs: dict[AttemptId, Job] = {}
        self._asks: dict[tuple[AttemptId, int], Ask] = {}
        self._granted: dict[tuple[AttemptId, int], int] = {}
        self._size: dict[int, float] = {}
        self._heap: list[tuple[float, int, Any]] = []
        self._timers: dict[Hashable, int] = {}
        self._serial = 0
        self._containers = 1

    def add(self, job: Job, policy: Asker | HoldAsker, at: float) -> AttemptId:
        attempt = attempt_id(len(self.masters) + 1, 1)
        settings = MasterSettings(planner="")
        self.masters[attempt] = ApplicationMaster(
            attempt, settings, policy, np.random.default_rng(0)
        )
        self._jobs[attempt] = job
        self._later(at, attempt, Started())
        return attempt

    def run(self) -> "Cluster":
        while self._heap and len(self.done) < len(self.masters):
            self.now, serial, (attempt, event) = heapq.heappop(self._heap)
            if isinstance(event, TimerFired) and self._timers.get((attempt, event.key)) != serial:
                continue
            if isinstance(event, int):
                self._grant(event)
            else:
                self._tell(attempt, event)
        return self

    def _later(self, delay_s: float, attempt: AttemptId, event: Any) -> int:
        self._serial += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._serial, (attempt, event)))
        return self._serial

    def _tell(self, attempt: AttemptId, event: Any) -> None:
        for effect in self.masters[attempt].handle(event, self.now):
            if isinstance(effect, Send):
                self._receive(attempt, effect.message)
            elif isinstance(effect, SetTimer) and effect.delay_s is not None:
                fired = TimerFired(effect.key)
                self._timers[attempt, effect.key] = self._later(effect.delay_s, attempt, fired)
        self.masters[attempt].check()

    def _receive(self, attempt: AttemptId, message: Any) -> None:
        types = ResourceTypes((ResourceType("r", Kind.RIGID),))
        if isinstance(message, AttemptRegistered):
            answer = accepted(
                self._jobs[attempt],
                attempt_id=attempt,
                types=types,
                machines=(((self.free,), 1),),
                share=(self.free,),
                heartbeat_s=1000.0,
            )
            self._later(0.0, attempt, answer)
        elif isinstance(message, ContainersAsked):
            for ask in message.asks:
                self._asks[attempt, ask.ask_id] = ask
            for container in message.releases:
                self._free(container)
            delay_s = self.response_s if self.now > 0 else 0.0
            self._later(delay_s, attempt, 0)
        elif isinstance(message, StartContainers):
            for launch in message.items:
                key = (launch.stage, launch.task, launch.attempt)
                number, lasts_s = launch.container_id, launch.duration_s
                if launch.reusable:
                    end = TaskEnd(number, *key, Outcome.SUCCEEDED, 0, lasts_s)
                    event: Any = TasksEnded(message.node_id, attempt, (end,))
                else:
                    over = ContainerEnd(number, Outcome.SUCCEEDED, 0, *key, lasts_s)
                    event = ContainersGranted(attempt, 0, ended=(over,))
                    self._free(number, lasts_s)
                self._later(lasts_s, attempt, event)
        elif isinstance(message, AttemptFinished):
            self.done.setdefault(attempt, self.now)
            for container in [c for c in self._size if c >> 32 == attempt]:
                self._free(container)

    def _free(self, container: int, after_s: float = 0.0) -> None:
        """What is given back can be granted again a response time later."""
        self._later(after_s + self.response_s, container >> 32, container)

    def _grant(self, freed: int = 0) -> None:
        self.free += self._size.pop(freed, 0.0)
        while True:
            wanted = [
                (sum(c >> 32 == attempt for c in self._size), attempt, ask)
                for (attempt, ask_id), ask in self._asks.items()
                if ask.total > self._granted.get((attempt, ask_id), 0)
                and ask.demand[0] <= self.free + 1e-9
                and attempt not in self.done
            ]
            if not wanted:
                return
            _, attempt, ask = min(wanted, key=lambda w: w[:2])
            self._containers += 1
            number = container_id(attempt, self._containers)
            self._size[number] = ask.demand[0]
            self.free -= ask.demand[0]
            key = (attempt, ask.ask_id)
            self._granted[key] = self._granted.get(key, 0) + 1
            grant = (Container(number, "n", ask.ask_id),)
            self._later(0.0, attempt, ContainersGranted(attempt, 0, containers=grant))


@examples("cobra_fig2")
def test_figure_2(case: dict[str, Any]) -> None:
    """One job under three policies; two under a fixed and under a yielding allocation."""
    with reading(case) as (given, expected, tolerance):
        check_figure_2(given, expected, tolerance["abs"])


def check_figure_2(given: Table, expected: Table, abs_: float) -> None:
    size, count = given["container_capacity"], given["containers"]
    stages = []
    for number, s in enumerate(given["stages"]):
        parents = (Edge(f"S{number - 1}"),) if number else ()
        stages.append(Stage(f"S{number}", s["n"], s["p"], {"r": s["r"]}, parents))
    job, container, second = Job("J", tuple(stages)), {"r": size}, given["release2"]
    quiet: dict[str, Any] = {"container": container, "period_s": 1000.0}
    quiet["over_estimate"] = 0.0  # the figure's demands are known

    def finish(*jobs: tuple[Asker | HoldAsker, float]) -> list[float]:
        cluster = Cluster(size * count, given["response"])
        names = [cluster.add(job, policy, at) for policy, at in jobs]
        cluster.run()
        return [cluster.done[name] for name in names]

    def close(found: list[float], wanted: list[float]) -> None:
        assert found == pytest.approx(wanted, abs=abs_)

    def average(ends: list[float]) -> float:
        return (ends[0] + ends[1] - second) / 2

    close(finish((Disposable(container), 0.0)), [expected["default"]])
    close(finish((AllReady(), 0.0)), [expected["tetris"]])
    close(finish((Cobra(**quiet, initial_desire=count), 0.0)), [expected["reuse"]])
    fixed = finish(*[(Static(count, container), at) for at in (0.0, second)])
    close(fixed, expected["static_completions"])
    assert average(fixed) == pytest.approx(expected["static_avg"], abs=abs_)
    yielding = Cobra(**quiet, initial_desire=count, surplus_release=True)
    shared = finish((yielding, 0.0), (Cobra(**quiet, surplus_release=True), second))
    close(shared, expected["dynamic_completions"])
    assert average(shared) == pytest.approx(expected["dynamic_avg"], abs=abs_)
