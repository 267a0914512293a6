"""A report's charts show what ran where and what waited, and none that says nothing is drawn."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.cli import weft
from lab.report.html import _gantt, _running, load_run, write_report

EVENING = """
name: evening
stages:
  - {name: index, tasks: 1, duration_s: 10, demand: {vcores: 1, memory_mb: 6144}}
  - {name: fetch, tasks: 2, duration_s: 2, demand: {vcores: 1, memory_mb: 4096}}
  - {name: render, tasks: 3, duration_s: 4, demand: {vcores: 3, memory_mb: 2048}, parents: [fetch]}
"""
CHARTS_OF_SEVERAL = ("Job completion times", "Fairness over time")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the student's tutorial: one job on one machine."""
    return simulated(tmp_path_factory.mktemp("one"), "evening.yaml")


def simulated(folder: Path, *jobs: str) -> Path:
    (folder / "evening.yaml").write_text(EVENING)
    long = EVENING.replace("duration_s: 10", "duration_s: 300").replace("evening", "night")
    (folder / "night.yaml").write_text(long)
    files = [str(folder / job) for job in jobs]
    flags = ["--cluster", "1x5vcores,9216memory_mb", "--pace", "prompt", "--scheduler", "graphene"]
    arguments = ["simulate", *files, *flags, "--out", str(folder / "run")]
    CliRunner().invoke(weft, arguments, catch_exceptions=False)
    return folder / "run"


def test_one_job_gets_no_chart_of_several(one: Path) -> None:
    told = write_report([one]).read_text()
    assert not [chart for chart in CHARTS_OF_SEVERAL if chart in told]
    assert "one colour a stage" in told


def test_several_jobs_get_theirs(tmp_path: Path) -> None:
    told = write_report([simulated(tmp_path, "evening.yaml", "night.yaml")]).read_text()
    assert [chart for chart in CHARTS_OF_SEVERAL if chart in told] == [*CHARTS_OF_SEVERAL]
    assert "one colour a job" in told


def test_tasks_that_run_and_that_wait_are_counted_in_steps(one: Path) -> None:
    """Two run until 12 s, and one until 14 s; of render two wait from 2 s on, one from 6 s."""
    running, waiting = (steps(line) for line in _running([load_run(one)]).axes[0].lines)
    assert [running(at) for at in (1.0, 11.9, 12.1, 13.9, 14.0)] == [2, 2, 1, 1, 0]
    assert [waiting(at) for at in (1.0, 2.1, 5.9, 6.1, 9.9, 10.1)] == [1, 2, 2, 1, 1, 0]


def steps(line: Any) -> Any:
    assert line.get_drawstyle() == "steps-post"
    known = list(zip(*line.get_data(), strict=True))
    return lambda at: [count for time, count in known if time <= at][-1]


def test_tasks_at_once_stand_beside_each_other_in_the_colour_of_their_stage(one: Path) -> None:
    axes = _gantt(load_run(one)).axes[0]
    (boxes,) = axes.collections
    assert len(boxes.get_paths()) == 6
    assert len({str(colour) for colour in boxes.get_facecolor()}) == 3
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["index", "fetch", "render"]
    spans = [path.get_extents().extents for path in boxes.get_paths()]
    pairs = [(a, b) for a in spans for b in spans if a is not b]
    assert not [1 for a, b in pairs if overlap(a[0::2], b[0::2]) and overlap(a[1::2], b[1::2])]


def overlap(a: Any, b: Any) -> bool:
    return bool(min(a[1], b[1]) - max(a[0], b[0]) > 1e-6)
