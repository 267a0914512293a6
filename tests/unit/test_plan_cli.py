"""`weft plan`, `bounds` and `validate` say what CONTRACT promises, and refuse what is wrong."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from am.plan.bounds.bounds import bounds_of
from lab.commands.plan import commands, explained
from lab.report.gantt import lanes
from lab.studies.plan import Row, case_of, improvements, loose, report, study, worse
from weft.client.numeric_options import finite
from weft.model.errors import WeftError
from weft.model.jobfile import job_from_dict

CLUSTER = "2x16vcores,65536memory_mb"
JOB = {
    "name": "etl",
    "stages": [
        {"name": "scan", "tasks": 8, "duration_s": 4, "demand": {"vcores": 4, "memory_mb": 8000}},
        {
            "name": "clean",
            "tasks": 8,
            "duration_s": 1.5,
            "demand": {"vcores": 2, "memory_mb": 16000},
            "parents": [{"stage": "scan", "edge": "one_to_one"}],
        },
        {"name": "stats", "tasks": 3, "duration_s": 9, "demand": {"vcores": 1}},
        {
            "name": "report",
            "tasks": 1,
            "duration_s": 2,
            "demand": {"vcores": 1},
            "parents": ["clean", "stats"],
        },
    ],
}
BOUNDS = {"cp_len_s", "t_work_s", "mod_cp_s", "new_lb_s", "strong_lb_s"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))
    return str(path)


def call(name: str, *words: str) -> Result:
    command = finite(next(command for command in commands if command.name == name))
    return CliRunner().invoke(command, list(words), prog_name=f"weft {name}")


def plan_of(job_file: str, *more: str) -> dict[str, Any]:
    result = call("plan", job_file, "--cluster", CLUSTER, "--planner", "bfs", "--json", *more)
    assert result.exception is None, result.output
    data: dict[str, Any] = json.loads(result.output)
    return data


def test_a_plan_has_every_field_of_the_contract(job_file: str, tmp_path: Path) -> None:
    """The file, the printed data and the table speak of the same plan."""
    out = tmp_path / "plan.json"
    data = plan_of(job_file, "--out", str(out))
    assert {"job", "planner", "makespan_s", "bounds", "planning_time_s", "candidates"} < set(data)
    assert set(data["bounds"]) == BOUNDS
    assert json.loads(out.read_text()) == data
    fields = {"stage", "index", "machine", "start_s", "end_s", "pri_score"}
    assert all(set(task) == fields for task in data["tasks"])
    assert len(data["tasks"]) == 20
    assert data["makespan_s"] == max(task["end_s"] for task in data["tasks"])
    shown = call("plan", job_file, "--cluster", CLUSTER, "--planner", "bfs", "--explain")
    assert "20 tasks by bfs" in shown.output
    assert "strong bound" in shown.output


def test_bounds_are_printed_alone(job_file: str) -> None:
    """As a table and as data."""
    data = json.loads(call("bounds", job_file, "--cluster", CLUSTER, "--json").output)
    assert set(data["bounds"]) == BOUNDS
    assert "(NewLB)" in call("bounds", job_file, "--cluster", CLUSTER).output


def test_a_good_plan_is_valid_and_each_fault_is_named(job_file: str, tmp_path: Path) -> None:
    """Exit 1 by an error, and a line for each kind of violation."""
    good = plan_of(job_file)
    path = tmp_path / "plan.json"

    def judged(data: Any) -> Result:
        path.write_text(json.dumps(data))
        return call("validate", job_file, "--cluster", CLUSTER, str(path))

    assert judged(good).exception is None
    for change, word in (
        (lambda tasks: tasks[0].update(end_s=99.0), "duration: scan[0]"),
        (lambda tasks: tasks[8].update(start_s=0.0, end_s=1.5), "precedence: clean[0]"),
        (lambda tasks: tasks[0].update(machine=7), "completeness: scan[0]"),
        (lambda tasks: tasks.pop(), "completeness: report[0] is missing"),
        (lambda tasks: tasks.append(dict(tasks[0])), "completeness: scan[0] is placed twice"),
        (lambda tasks: tasks[0].update(stage="x"), "completeness: the job has no task x[0]"),
        (lambda tasks: [t.update(machine=0) for t in tasks[:8]], "capacity: machine 0 holds"),
        (lambda tasks: tasks[0].update(start_s=-4.0, end_s=0.0), "start: scan[0]"),
    ):
        bad = json.loads(json.dumps(good))
        change(bad["tasks"])
        result = judged(bad)
        assert isinstance(result.exception, WeftError), word
        assert word in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cluster", "2x16vcores"], "stages[0].demand.memory_mb"),
        (["--cluster", "2x3vcores,65536memory_mb"], "'scan' task 0: fits on no machine"),
        (["--cluster", "many"], "many"),
        (["--cluster", CLUSTER, "--planner", "magic"], "unknown planner"),
        (["--cluster", CLUSTER, "--set", "x"], "key=value"),
        (["--cluster", CLUSTER, "--time-limit-s", "-1"], "--time-limit-s"),
        (["--cluster", CLUSTER, "--job", "other"], "holds no job 'other'"),
        (["--cluster", CLUSTER, "--out", "/nowhere/plan.json"], "cannot be written"),
        (["--cluster", CLUSTER, "--plot", "plan.gif2"], "plan.gif2"),
    ],
)
def test_bad_input_is_one_clear_line(job_file: str, words: list[str], said: str) -> None:
    """The error names the place; nobody sees a trace."""
    more = [] if "--planner" in words else ["--planner", "bfs"]
    result = call("plan", job_file, *words, *more)
    assert isinstance(result.exception, WeftError), result.output
    assert said in str(result.exception)


def test_a_plan_that_is_no_plan_is_refused(job_file: str, tmp_path: Path) -> None:
    """Not JSON, no tasks, times that are no numbers."""
    path = tmp_path / "plan.json"
    for text in ("{", "[]", '{"tasks": [1]}', '{"tasks": [{"stage": "scan", "index": 0}]}'):
        path.write_text(text)
        result = call("validate", job_file, "--cluster", CLUSTER, str(path))
        assert isinstance(result.exception, WeftError), text


def test_a_file_with_several_jobs_needs_a_choice(tmp_path: Path) -> None:
    """`--job` chooses; without it nothing is guessed."""
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps([JOB, {**JOB, "name": "other"}]))
    result = call("bounds", str(path), "--cluster", CLUSTER)
    assert "--job" in str(result.exception)
    chosen = call("bounds", str(path), "--cluster", CLUSTER, "--job", "other", "--json")
    assert json.loads(chosen.output)["job"] == "other"


def test_a_recurring_job_gets_the_plan_built_before(tmp_path: Path) -> None:
    """Equal structure is reused though its name differs; anything else is planned anew."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**JOB, "history_key": "nightly"}))
    first, second = plan_of(str(path)), plan_of(str(path))
    assert (first["reused"], second["reused"]) == (False, True)
    assert second["tasks"] == first["tasks"]
    path.write_text(json.dumps({**JOB, "name": "etl-2", "history_key": "nightly"}))
    assert plan_of(str(path))["reused"]
    assert not plan_of(str(path), "--no-reuse")["reused"]
    assert not plan_of(str(path), "--seed", "4")["reused"]
    for kept in (tmp_path / "cache" / "weft" / "plans").iterdir():
        kept.write_text("{}")
    assert not plan_of(str(path))["reused"]


def test_the_picture_has_bars_bounds_and_stages(job_file: str, tmp_path: Path) -> None:
    """Equal plans give equal bytes, and every stage stands in the legend."""
    pictures = []
    for name in ("a.svg", "b.svg"):
        plan_of(job_file, "--plot", str(tmp_path / name))
        pictures.append((tmp_path / name).read_text())
    assert pictures[0] == pictures[1]
    assert len(re.findall(r"<path", pictures[0])) > 20
    for stage in JOB["stages"]:
        assert f"{stage['name']} x {stage['tasks']}" in pictures[0]  # type: ignore[index]


def test_overlapping_bars_get_lanes_of_their_own() -> None:
    """Two tasks at once on a machine never share a lane; one after the other may."""
    lane, width = lanes(
        np.array([0, 0, 0, 1]), np.array([0.0, 1.0, 2.0, 0.0]), np.array([2.0, 3.0, 4.0, 9.0])
    )
    assert lane.tolist() == [0, 1, 0, 0]
    assert width.tolist() == [2, 2, 2, 1]


def test_the_explanation_is_plain_lines() -> None:
    """A line for each thing that is said of a part, in words, and plain facts after them."""
    part = {
        "tasks": 6,
        "long_at_least": 1.0,
        "frag_at_most": None,
        "frag": "ratio",
        "rule": "longest",
        "troublesome": 1,
        "troublesome_share": 1 / 6,
        "troublesome_work_share": 0.25,
        "troublesome_ranges": [(0, 0)],
        "order": "TSCP",
        "heading": "forward",
        "span_s": 14.0,
        "bound_s": 14.0,
        "share": 0.5,
    }
    passed, listed = {"tasks": 3, "bypass": True}, {"tasks": 1, "list": "bfs"}
    simple = {**passed, "bypass_why": "simple"}
    parts = [part, passed, simple, listed]
    lines = explained({"parts": parts, "proven": True}, ["index[0]"])
    assert lines == [
        "part 1: 6 tasks",
        "  troublesome: 1 (index[0]) with 25% of the work, as they last at least 1 of the longest "
        "task",
        "  they are placed first, then those that no order binds to them, then those that come "
        "after them, then those that come before them (TSCP)",
        "  from the start onward",
        "  of what is ready the longest task goes first",
        "  14 s, at least 14 s",
        "  share 0.5",
        "part 2: 3 tasks",
        "  placed in one pass",
        "part 3: 3 tasks",
        "  placed in one pass, as no order is better than another: its tasks are alike and wait "
        "for none",
        "part 4: 1 task",
        "  the list schedule, breadth first, was the shortest",
        "proven: True",
    ]


def test_the_study_reads_out_percentiles() -> None:
    """Improvement is over breadth first, in %, and the report has a line for each planner."""
    made = study(case_of("x", job_from_dict(JOB)), ["critical_path"], {})
    assert made.strong_lb_s <= made.makespan_s["critical_path"]
    rows = [
        Row(str(i), "x", f"q{i}", 1, 1, 2, 10.0, 10.0, {"bfs": 100.0, "tetris": 100.0 - i})
        for i in range(101)
    ]
    assert improvements(rows, "tetris") == pytest.approx([25.0, 50.0, 75.0, 90.0])
    assert "| `tetris` | 25 | 50 | 75 | 90 |" in report(rows)
    assert loose(rows, "tetris", 9.5).count("\n") == 2 + 5 - 1
    assert worse(rows, "tetris", ["bfs"]).endswith("0 of 101 DAGs")
    assert "on 100 of 101 DAGs: q1 (2 machines), q2" in worse(rows, "bfs", ["tetris"])


@pytest.mark.slow
def test_the_exact_planner_says_how_to_get_it(
    job_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the optional extra there is one clear line, not a trace."""
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    # a first guess that the bound proves needs no solver
    monkeypatch.setattr(
        "am.plan.optimal.bounds_of",
        lambda dag, machines: replace(bounds_of(dag, machines), strong_lb_s=0.0),
    )
    result = call(
        "plan", job_file, "--cluster", "1x16vcores,65536memory_mb", "--planner", "optimal"
    )
    assert "pip install 'weft-rm[optimal]'" in str(result.exception)


def test_a_limit_that_is_no_number_is_an_error_of_the_command_line(job_file: str) -> None:
    result = call("plan", job_file, "--cluster", CLUSTER, "--time-limit-s", "nan")
    assert result.exit_code == 2
    assert "--time-limit-s" in result.output
    assert "finite" in result.output
