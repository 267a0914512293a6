"""TPC-H runs: the durations of the chosen run are the truth, and what is assumed is said."""

import copy
import json

import pytest

from weft.model.errors import InputError
from weft.model.job import Edge
from weft.workloads import tpch


def run(first, rest=(), fresh=()):
    return {"fresh_durations": list(fresh), "first_wave": list(first), "rest_wave": list(rest)}


QUERY = {
    "benchmark": "TPC-H",
    "query": 7,
    "size": "2g",
    "duration_unit": "ms",
    "num_stages": 2,
    "num_edges": 1,
    "stages": [
        {
            "index": 0,
            "parents": [],
            "children": [1],
            "num_tasks": 3,
            "durations_ms": {
                "2": run([1000, 2000], [6000], fresh=[1000]),
                "20": run([500, 700, 900]),
            },
        },
        {
            "index": 1,
            "parents": [0],
            "children": [],
            "num_tasks": 1,
            "durations_ms": {"2": run([100]), "20": run([200], [400])},
        },
    ],
}


def read(tmp_path, data=QUERY, **options):
    path = tmp_path / "q07.json"
    path.write_text(json.dumps(data))
    return tpch.read([path], **options)


def test_tasks_of_a_run_are_its_first_wave_and_its_rest_never_the_fresh_ones_again(tmp_path):
    (job,) = read(tmp_path, executors=2).jobs
    assert (job.name, job.history_key, job.input_mb) == ("tpch-2g-q07", "tpch-q07", 2048.0)
    first, second = job.stages
    assert first.actual_duration_s == (1.0, 2.0, 6.0)
    assert (first.tasks, first.duration_s) == (3, 3.0)
    assert second.parents == (Edge("stage0"),)


def test_the_median_may_be_the_estimate(tmp_path):
    (job,) = read(tmp_path, executors=2, estimate="median").jobs
    assert job.stages[0].duration_s == 2.0


def test_the_nearest_run_is_used_and_said(tmp_path):
    result = read(tmp_path, executors=50)
    assert result.jobs[0].stages[0].actual_duration_s == (0.5, 0.7, 0.9)
    assert any("no run with 50 executors, 20 is used" in w for w in result.warnings)


def test_a_run_with_another_number_of_tasks_is_said(tmp_path):
    result = read(tmp_path, executors=20)
    assert any("1 tasks are stated, the run with 20 executors has 2" in w for w in result.warnings)
    assert result.jobs[0].stages[1].tasks == 2


def test_the_assumed_demand_is_said_and_can_be_chosen(tmp_path):
    result = read(tmp_path, vcores=2.0, memory_mb=100.0)
    assert result.jobs[0].stages[0].demand == {"vcores": 2.0, "memory_mb": 100.0}
    assert "2 vcores and 100 MB" in result.warnings[0]


def change(path, value):
    data = copy.deepcopy(QUERY)
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return data


BAD = [
    (("duration_unit",), "s", "expected ms"),
    (("query",), "x", "number of the query"),
    (("stages",), 3, "expected a list"),
    (("stages", 1, "parents"), [5], "stage 5, which does not exist"),
    (("stages", 0, "children"), [], "children do not name 1"),
    (("stages", 1, "index"), 4, "expected 1, got 4"),
    (("stages", 1, "durations_ms"), {"2": run([])}, "no run has durations for every stage"),
    (("stages", 1, "durations_ms"), {"x": run([1])}, "executor counts as keys"),
    (("stages", 1, "durations_ms", "2", "first_wave"), [-1], "non-negative"),
    (("stages", 1, "durations_ms", "2", "rest_wave"), None, "expected a list"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD)
def test_a_malformed_query_is_refused_with_its_place(tmp_path, path, value, message):
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, change(path, value), executors=2)
    assert "q07.json" in str(caught.value)


PROFILE = [
    {"stage_id": 0, "stage_name": "x", "num_tasks": 5, "average_runtime_ms": 1500.0},
    {"stage_id": 3, "stage_name": "x", "num_tasks": 1, "average_runtime_ms": 10.0},
]
GRAPHS = "graphs:\n  - name: Q1\n    graph:\n      - {name: 0, children: [3]}\n      - {name: 3}\n"


def profiles(tmp_path, graphs=GRAPHS, stages=PROFILE):
    data = {"tpch_q1_50g_maxCores_50": stages, "tpch_q1_50g_maxCores_75": PROFILE, "other": []}
    (tmp_path / "profiles.json").write_text(json.dumps(data))
    if graphs:
        (tmp_path / "queries.yaml").write_text(graphs)
    return tpch.read([tmp_path / "profiles.json"], executors=50)


def test_profiles_take_their_dag_from_the_yaml_beside_them_with_gaps_in_ids(tmp_path):
    result = profiles(tmp_path)
    (job,) = result.jobs
    assert [(s.name, s.tasks, s.duration_s) for s in job.stages] == [
        ("stage0", 5, 1.5),
        ("stage3", 1, 0.01),
    ]
    assert job.stages[1].parents == (Edge("stage0"),)
    assert result.dropped == {
        "run with another executor count": 1,
        "profile with an unknown name": 1,
    }


def test_profiles_without_their_dags_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"need queries\.yaml"):
        profiles(tmp_path, graphs="")
    with pytest.raises(InputError, match=r"query 1 is not in queries\.yaml"):
        profiles(tmp_path, graphs=GRAPHS.replace("Q1", "Q2"))
    with pytest.raises(InputError, match=r"stage 9 is not in queries\.yaml"):
        profiles(tmp_path, stages=[{**PROFILE[0], "stage_id": 9}])


def test_options_out_of_range_are_refused(tmp_path):
    for options in ({"executors": 0}, {"estimate": "max"}, {"vcores": -1.0}):
        with pytest.raises(InputError):
            read(tmp_path, **options)
