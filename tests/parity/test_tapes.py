"""Whatever happens to messages and processes, cores fed what others handled answer alike."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest

import sim.cluster
import sim.replay.verify
from am.core import ApplicationMaster
from nm.core import NodeManager
from rm.core import ResourceManager
from sim.cluster import Simulation
from sim.engine import Actor
from sim.faults import random_faults
from sim.replay.verify import Replay
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_dict
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import preset
from weft.protocol.messages import Address
from weft.tape.rows import TapeReader, TapeWriter

CORES = (ResourceManager, NodeManager, ApplicationMaster)
CLUSTER = cluster_from_dict(
    {"nodes": [{"count": 6, "capacity": {"vcores": 4, "memory_mb": 8192}, "racks": 2}]}
)


class Tapes:
    """One tape of all cores of a simulation, and a twin of each, made of the same."""

    def __init__(self) -> None:
        self.writer = TapeWriter(check_every=1)
        self.twins: list[tuple[type, Any]] = []  # of each core its type and arguments
        self.numbers: dict[int, int] = {}  # of a core's twin, by the core's id
        self.begun: set[Address] = set()
        self.told: dict[str, Any] = {}  # more of what the manager was made with

    def maker(self, kind: type) -> Callable[..., Any]:
        """What makes a core of a kind, and its twin."""

        def make(*arguments: Any) -> Any:
            self.twins.append((kind, deepcopy(arguments)))
            core = kind(*arguments)
            self.numbers[id(core)] = len(self.twins) - 1
            return core

        return make

    def actor(self, address: Address, core: Any, name: str = "") -> Actor:
        """An actor whose core is on the tape."""
        actor = Actor(address, core, name)
        if not isinstance(core, CORES):
            return actor
        if address in self.begun:
            self.writer.remove(address)
        self.begun.add(address)
        more = self.told if isinstance(core, ResourceManager) else {}
        self.writer.add(address, {"twin": self.numbers[id(core)], **more})

        def handle(event: Any, now: float) -> list[Any]:
            orders = core.handle(event, now)
            self.writer.handled(address, event, now, orders)
            return orders

        actor.handle = handle
        return actor

    def twin(self, made: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        """A core like the one that a tape names, each time another."""
        kind, arguments = self.twins[made["twin"]]
        return kind(*deepcopy(arguments))


def jobs(count: int) -> list[Job]:
    demand = {"vcores": 1.0, "memory_mb": 1024.0}
    first = Stage("map", 12, 6.0, demand, actual_duration_s=tuple(3.0 + i / 3 for i in range(12)))
    second = Stage("reduce", 4, 5.0, demand, (Edge("map"),))
    return [Job(f"j{i}", (first, second), arrival_s=4.0 * i) for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prompt", "seed"),
    [("capacity", False, 1), ("graphene", True, 2), ("carbyne", False, 3), ("cobra", True, 4)],
)
def test_cores_answer_alike_under_faults_and_bad_links(
    name: str, prompt: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are lost, doubled and late; nodes, masters and the manager die and come back."""
    tapes = Tapes()
    monkeypatch.setattr(sim.cluster, "Actor", tapes.actor)
    for kind in CORES:
        monkeypatch.setattr(sim.cluster, kind.__name__, tapes.maker(kind))
    nodes = [spec.node_id for spec in CLUSTER.nodes]
    settings = SimSettings(
        preset(name), seed, prompt=prompt, faults=random_faults(seed, nodes, 4, 40.0), until_s=200.0
    )
    Simulation(CLUSTER, jobs(4), settings).run()
    monkeypatch.setattr(sim.replay.verify, "make_core", tapes.twin)
    reader = TapeReader()
    rows = [*reader.rows(tapes.writer.take()), *reader.finish()]
    run = Replay().run(rows)
    assert run.difference is None, run.difference
    assert run.events == tapes.writer.events > 500
    assert run.placements >= (16 if name == "cobra" else 64)  # containers that are used again
    assert run.sums > 400
    assert run.made > len(CLUSTER.nodes) + 5, "some began anew"
