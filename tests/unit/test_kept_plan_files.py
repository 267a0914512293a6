"""A kept plan that somebody broke costs a search, never a job."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from am.plan.options import read_options
from am.plan.registry import PlanRequest, planner
from am.plan.reuse import plan_from_data, plan_to_data
from am.process.planning import Planning
from am.process.shelf import DiskShelf
from lab.studies.psplib import _best_known
from weft.model.dag import Machines, dag_of_job
from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol.effects import MakePlan, PlanReady

TYPES = ResourceTypes((ResourceType("vcores", Kind.DIVISIBLE),))


def order(**options: object) -> MakePlan:
    stages = tuple(Stage(f"s{n}", 3, 1.0 + n, {"vcores": 1.0}) for n in range(4))
    job = Job("nightly", stages, history_key="nightly")
    return MakePlan("graphene", job, TYPES, (((4.0,), 2),), 0, options)


def served(folder: Path, wanted: MakePlan) -> PlanReady:
    planning = Planning(0, 20.0, DiskShelf(folder))
    try:
        return asyncio.run(planning.make(wanted))
    finally:
        planning.close()


@pytest.mark.parametrize(
    "broken",
    [
        {"order": [99] * 12},
        {"order": list(range(2)), "machine": [0] * 2, "start_s": [0.0] * 2, "end_s": [1.0] * 2},
        {"start_s": [float("nan")] * 12},
        {"machine": [[0]] * 12},
        {"order": [10**30] * 12},
    ],
)
def test_a_broken_file_is_planned_anew(tmp_path, broken):
    assert served(tmp_path, order()).plan.candidates > 0
    assert served(tmp_path, order()).plan.candidates == 0, "kept"
    (path,) = tmp_path.glob("*.json")
    data = json.loads(path.read_text())
    data["plan"] |= broken
    path.write_text(json.dumps(data))
    again = served(tmp_path, order())
    assert (again.error, len(again.plan.order)) == ("", 12)
    assert again.plan.candidates > 0
    path.write_text("[" * 200_000)
    assert served(tmp_path, order()).plan.candidates > 0


def test_a_plan_keeps_its_shape_on_the_way():
    dag = dag_of_job(order().job, TYPES)
    machines = Machines(np.full((2, 1), 4.0))
    made = planner("graphene")(PlanRequest(dag, machines, np.random.default_rng(0), {}))
    assert plan_from_data(plan_to_data(made)).order.tolist() == made.order.tolist()
    for field, value in {"order": made.order[::-1][:3], "start_s": made.start_s * np.nan}.items():
        with pytest.raises(InputError, match="not a kept plan"):
            plan_from_data(plan_to_data(replace(made, **{field: value})))


def test_who_asked_for_the_papers_own_answer_keeps_it():
    async def main() -> tuple[PlanReady, PlanReady]:
        planning = Planning(0, 20.0)
        first = await planning.make(order(candidates="paper"))
        for _ in range(5):
            await planning.improve()
        again = await planning.make(order(candidates="paper"))
        planning.close()
        return first, again

    first, again = asyncio.run(main())
    assert again.plan.planner == first.plan.planner == "graphene"


@pytest.mark.parametrize(
    "options",
    [{"thresholds": -1}, {"thresholds": "nan"}, {"early_stop": "nan"}, {"thresholds": 10**23}],
)
def test_options_out_of_range_are_told(options):
    (name,) = options
    with pytest.raises(InputError, match=f"options.{name}"):
        read_options(options)


@pytest.mark.parametrize("text", ["{", "[]", '{"j301_1": {"best": null}}', '{"j301_1": 3}'])
def test_best_known_makespans_that_are_none_are_told(tmp_path, text):
    path = tmp_path / "best_known.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"best_known\.json"):
        _best_known(path)
