"""Runs as tables, functions for notebooks, and traces whose slices are the tasks of the run."""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import weft
import weft.results
from lab.cli import weft as command
from weft.model.errors import InputError

CLUSTER = "20x8vcores,64000memory_mb"
JOB = {
    "name": "two",
    "stages": [
        {"name": "a", "tasks": 6, "duration_s": 4, "demand": {"vcores": 1, "memory_mb": 100}},
        {
            "name": "b",
            "tasks": 3,
            "duration_s": 2.5,
            "demand": {"vcores": 2, "memory_mb": 100},
            "parents": ["a"],
        },
    ],
}


def slices_of(path: Path) -> list[tuple[Any, ...]]:
    """What a reader of the trace format sees: nested slices of one lane would be an error."""
    events = json.loads(path.read_text())["traceEvents"]
    nodes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    lanes: dict[int, int] = {}
    rows = []
    for event in (e for e in events if e["ph"] == "X"):
        assert lanes.get(event["tid"], 0) <= event["ts"], "slices of a lane overlap"
        lanes[event["tid"]] = event["ts"] + event["dur"]
        told = event["args"]
        rows.append(
            (
                told["job"],
                told["stage"],
                told["index"],
                told["attempt"],
                nodes[event["pid"]],
                told["container"],
                event["ts"],
                event["ts"] + event["dur"],
                told["state"],
            )
        )
    return sorted(rows)


def tasks_of(path: Path) -> list[tuple[Any, ...]]:
    with path.open(newline="") as file:
        return sorted(
            (
                int(r["job"]),
                r["stage"],
                int(r["index"]),
                int(r["attempt"]),
                r["node"],
                r["container"],
                round(float(r["start_s"]) * 1e6),
                round(float(r["end_s"]) * 1e6),
                r["state"],
            )
            for r in csv.DictReader(file)
        )


@pytest.mark.slow
def test_a_trace_of_ten_thousand_simulated_tasks_is_its_table(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    stages = [
        {
            "name": "m",
            "tasks": 400,
            "duration_s": 7,
            "demand": {"vcores": 1, "memory_mb": 10},
            "actual_duration_s": [5 + i % 11 / 3 for i in range(400)],
        },
        {
            "name": "r",
            "tasks": 100,
            "duration_s": 3,
            "demand": {"vcores": 2, "memory_mb": 10},
            "parents": ["m"],
        },
    ]
    lines = [json.dumps({"name": f"j{i}", "stages": stages}) for i in range(20)]
    jobs.write_text("\n".join(lines) + "\n")
    trace, out = tmp_path / "out.perfetto.json", tmp_path / "out"
    done = CliRunner().invoke(
        command,
        ["simulate", str(jobs), "--cluster", CLUSTER, "--out", str(out), "--trace", str(trace)],
    )
    assert done.exit_code == 0, done.output
    tasks = tasks_of(out / "tasks.csv")
    assert len(tasks) == 10_000
    assert slices_of(trace) == tasks


@pytest.mark.slow
def test_tables_are_typed_and_parquet_holds_the_same(tmp_path: Path) -> None:
    (tmp_path / "j.json").write_text(json.dumps(JOB))
    out = tmp_path / "out"
    done = CliRunner().invoke(
        command,
        ["simulate", str(tmp_path / "j.json"), "--cluster", CLUSTER, "--out", str(out)],
    )
    assert done.exit_code == 0, done.output
    plain = weft.results.load(out)
    weft.results.write_parquet(out)
    os.utime(out / "tasks.parquet", ns=(2**62, 2**62))
    fast = weft.results.load(out)
    for name, table in plain.tables().items():
        assert fast.tables()[name].schema == table.schema, name
        assert fast.tables()[name].to_pylist() == table.to_pylist(), name
    assert [str(kind) for kind in plain.tasks.schema.types][:4] == [
        "int64",
        "dictionary<values=string, indices=int32, ordered=0>",
        "int32",
        "int32",
    ]
    assert plain.jobs["state"].to_pylist() == ["SUCCEEDED"]
    assert plain.summary["jobs"] == 1
    frames = plain.to_pandas()
    assert len(frames["tasks"]) == 9
    assert plain.to_polars()["tasks"].height == 9
    assert sorted(frames["stages"]["stage"]) == ["a", "b"]


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        weft.results.load(tmp_path / "none")
    with pytest.raises(InputError, match=r"jobs.csv: is missing"):
        weft.results.load(tmp_path)
    (tmp_path / "jobs.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"jobs.csv: is no table"):
        weft.results.load(tmp_path)


# of the wrong kind, or never what was meant
BAD_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"seed": "x"},
    {"seed": 1.5},
    {"seed": True},
    {"load": "2"},
    {"load": math.inf},
    {"until_s": None},
    {"arrivals": 5},
    {"faults": ["kill"]},
    {"out": 5},
    {"matcher": object()},
    {"checks": "no"},
    {"estimate_error": (-0.5, 0.5)},
    {"options": ["m.x=1"]},
    {"report": True},
)


@pytest.mark.slow
def test_a_run_in_which_no_task_started_has_a_summary() -> None:
    short = {**JOB, "arrival_s": 20, "lifetime_s": 0.1}
    run = weft.simulate([short, {**short, "name": "again"}], "2x4vcores,4096memory_mb")
    assert run.tasks.num_rows == 0
    assert set(run.summary["jain"].values()) == {None}


def test_simulate_and_plan_are_functions(tmp_path: Path) -> None:
    cluster = {
        "resources": [
            {"name": "vcores", "kind": "divisible"},
            {"name": "memory_mb", "kind": "rigid"},
        ],
        "nodes": [{"count": 2, "capacity": {"vcores": 4, "memory_mb": 4096}}],
    }
    run = weft.simulate([JOB, {**JOB, "name": "again"}], cluster, "tez_cp", seed=3)
    assert run.jobs["name"].to_pylist() == ["two", "again"]
    assert run.tasks.num_rows == 18
    assert run.summary["states"] == {"SUCCEEDED": 2}
    assert run.folder is None
    path = tmp_path / "j.json"
    path.write_text(json.dumps(JOB))
    same = weft.simulate(path, "2x4vcores,4096memory_mb", options={"manager.heartbeat_s": 0.5})
    assert same.summary["settings"]["manager"]["heartbeat_s"] == 0.5
    found = weft.plan(JOB, cluster, "critical_path")
    assert found["planner"] == "critical_path"
    assert len(found["tasks"]) == 9
    assert found["makespan_s"] >= found["bounds"]["strong_lb_s"] > 0
    with pytest.raises(InputError, match="unknown parameter"):
        weft.plan(JOB, cluster, "bfs", options={"foo": 1})
    with pytest.raises(InputError, match="unknown option"):
        weft.simulate(JOB, cluster, colour="red")
    for bad in BAD_ARGUMENTS:
        with pytest.raises(InputError, match=next(iter(bad))):
            weft.simulate(JOB, cluster, **bad)
    for nothing in (None, 5):
        with pytest.raises(InputError, match="workload"):
            weft.simulate(nothing, cluster)  # type: ignore[arg-type]
    for bad in ({"workers": 0}, {"time_limit_s": -1}, {"options": ["rule=1"]}):
        with pytest.raises(InputError, match=next(iter(bad))):
            weft.plan(JOB, cluster, **bad)  # type: ignore[arg-type]


PROGRAM = """
import re, sys, time
import pyarrow, pyarrow.csv, pyarrow.parquet
import weft.results
began = time.process_time(), time.perf_counter()
run = weft.results.load(sys.argv[1])
# its own memory: ru_maxrss has that of the process that it was copied from, too
peak_kb = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(run.tasks.num_rows, time.process_time() - began[0], time.perf_counter() - began[1],
      int(peak_kb) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("parquet", [False, True])
def test_a_million_tasks_load_within_a_gigabyte(tmp_path: Path, parquet: bool) -> None:
    with (tmp_path / "tasks.csv").open("w") as file:
        file.write(",".join(weft.results.SCHEMAS["tasks"]) + "\n")
        for i in range(1_000_000):
            start = i * 0.001234
            file.write(
                f"{1 + i % 997},Map {i % 40},{i},0,n{i % 4000},container_0_{i % 997:04d}_01_{i:06d}"
                f",{start:.6f},{start + 1:.6f},{start + 13.25:.6f},SUCCEEDED\n"
            )
    (tmp_path / "jobs.csv").write_text(",".join(weft.results.SCHEMAS["jobs"]) + "\n")
    (tmp_path / "stages.csv").write_text(",".join(weft.results.SCHEMAS["stages"]) + "\n")
    if parquet:
        weft.results.write_parquet(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, cpu_s, wall_s, memory_mb = map(float, done.stdout.split())
    print(f"{rows:,.0f} rows in {wall_s:.2f} s ({cpu_s:.2f} s of CPU), {memory_mb:.0f} MB")
    assert rows == 1_000_000
    assert memory_mb < 1024
