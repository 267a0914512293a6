"""A recurring job's second run gets the plan of its first: live masters and the simulator."""

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from am.plan.reuse import PlanShelf
from am.process import planning
from am.process.planning import Planning
from am.process.shelf import DiskShelf
from sim import cluster
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.job import Edge, Job, Stage
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.policies.presets import preset
from weft.protocol.effects import MakePlan

TYPES = ResourceTypes((ResourceType("cpu", Kind.DIVISIBLE), ResourceType("disk", Kind.DIVISIBLE)))
MACHINES = (((1.0, 1.0), 2),)


def nightly(slower: float = 1.0, key: str = "nightly") -> Job:
    """A job in which Graphene's search has something to choose."""
    rng = np.random.default_rng(5)
    stages = []
    for number in range(8):
        above = tuple(Edge(f"s{p}") for p in range(number) if rng.random() < 0.3)
        demand = {"cpu": float(rng.uniform(0.1, 0.8)), "disk": float(rng.uniform(0.1, 0.8))}
        stages.append(Stage(f"s{number}", 2, slower * float(rng.integers(1, 9)), demand, above))
    return Job("etl", tuple(stages), history_key=key)


def order(job: Job, planner: str = "graphene", **more: object) -> MakePlan:
    return dataclasses.replace(MakePlan(planner, job, TYPES, MACHINES, 0, {}), **more)  # type: ignore[arg-type]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The planner of every plan that is really built."""
    names: list[str] = []
    make = planning.make_plan

    def counted(wanted: MakePlan, limit_s: float = 1e9) -> object:
        names.append(wanted.planner)
        return make(wanted, limit_s)

    monkeypatch.setattr(planning, "make_plan", counted)
    return names


def test_the_second_run_waits_for_no_plan(built: list[str]) -> None:
    """Not even where its estimates have moved; other machines, options and jobs are planned."""

    async def runs() -> None:
        shelf = Planning(0, 30.0)
        first = await shelf.make(order(nightly()))
        again = await shelf.make(order(nightly(1.1)))
        assert built == ["graphene"]
        assert first.plan is not None
        assert again.plan is not None
        assert np.array_equal(first.plan.order, again.plan.order)
        assert (again.planning_time_s, again.plan.candidates) == (0.0, 0)
        await shelf.make(order(nightly(), machines=(((1.0, 1.0), 3),)))
        await shelf.make(order(nightly(), options={"thresholds": 4}))
        await shelf.make(order(nightly(key="other")))
        await shelf.make(order(nightly(key="")))
        await shelf.make(order(nightly(key="")))
        assert len(built) == 6
        shelf.close()

    asyncio.run(runs())


@pytest.mark.slow
def test_kept_plans_become_better_in_idle_time(built: list[str]) -> None:
    """New estimates are planned anew, then `graphene_plus` looks for a shorter plan."""

    async def runs() -> None:
        kept = PlanShelf()
        shelf = Planning(0, 30.0, kept)
        first = await shelf.make(order(nightly()))
        await shelf.make(order(nightly(2.0)))
        while await shelf.improve():
            pass
        assert built[0] == "graphene"
        assert built[1] == "graphene"  # the estimates had doubled
        assert set(built[2:]) == {"graphene_plus"}
        now = await shelf.make(order(nightly(2.0)))
        assert first.plan is not None
        assert now.plan is not None
        assert now.plan.makespan_s <= 2 * first.plan.makespan_s * (1 + 1e-9)
        assert not now.plan.candidates
        shelf.close()

    asyncio.run(runs())


def test_masters_in_processes_of_their_own_share_a_folder(tmp_path: Path, built: list[str]) -> None:
    """What one left there is found by the next; a damaged file costs a search, no more."""

    async def runs() -> None:
        for _ in range(2):
            shelf = Planning(0, 30.0, DiskShelf(tmp_path / "plans"))
            assert (await shelf.make(order(nightly()))).plan is not None
            shelf.close()
        assert len(built) == 1
        for path in (tmp_path / "plans").iterdir():
            path.write_text("{")
        shelf = Planning(0, 30.0, DiskShelf(tmp_path / "plans"))
        assert (await shelf.make(order(nightly()))).plan is not None
        assert len(built) == 2
        shelf.close()

    asyncio.run(runs())


def test_the_shelf_forgets_what_was_not_used_for_longest() -> None:
    """And a longer plan for equal estimates does not replace a shorter one."""

    async def plans() -> list[object]:
        shelf = Planning(0, 30.0)
        made = [(await shelf.make(order(nightly(f)))).plan for f in (1.0,)]
        shelf.close()
        return list(made)

    (plan,) = asyncio.run(plans())
    shelf = PlanShelf(plans_max=2)
    longer = dataclasses.replace(plan, end_s=plan.end_s + 1.0)  # type: ignore[type-var, attr-defined]
    assert shelf.keep("a", plan, "x")  # type: ignore[arg-type]
    assert not shelf.keep("a", longer, "x")  # type: ignore[arg-type]
    assert shelf.keep("b", longer, "x")  # type: ignore[arg-type]
    assert shelf.find("a")
    assert shelf.keep("c", longer, "x")  # type: ignore[arg-type]
    assert shelf.find("b") is None
    assert not shelf.keep("", longer, "x")  # type: ignore[arg-type]


def test_the_simulator_serves_kept_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second arrival of a recurring job starts by the first one's plan."""
    served: list[int] = []
    original = cluster.PlanReady

    def seen(plan: object, *rest: object) -> object:
        served.append(plan.candidates)  # type: ignore[attr-defined]
        return original(plan, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster, "PlanReady", seen)
    jobs = [nightly(), dataclasses.replace(nightly(), name="etl-2", arrival_s=1.0)]
    spec = cluster_from_text("3x16cpu,16disk")
    cluster.Simulation(spec, jobs, SimSettings(preset("graphene"))).run()
    assert len(served) == 2
    assert served[0] > 0
    assert served[1] == 0
