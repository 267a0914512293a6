"""A study is resumable and gives the same digests with any number of workers."""

import json
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest

from lab.studies.grid import Grid, read_grid, run_study
from weft.model.errors import InputError, WeftError
from weft.model.job import Edge, Job, Stage
from weft.model.jobfile import job_to_dict


def workload(path: Path) -> str:
    """Six small jobs that arrive one after the other."""
    rng = np.random.default_rng(3)
    jobs = [
        Job(
            f"j{i}",
            (
                Stage("a", int(rng.integers(2, 12)), 5.0, {"vcores": 1.0, "memory_mb": 512.0}),
                Stage("b", 3, 4.0, {"vcores": 2.0, "memory_mb": 256.0}, (Edge("a"),)),
            ),
            arrival_s=float(3 * i),
        )
        for i in range(6)
    ]
    path.write_text("".join(json.dumps(job_to_dict(job)) + "\n" for job in jobs))
    return str(path)


@pytest.mark.slow
def test_a_study_is_the_same_on_one_and_two_workers_and_after_a_stop(tmp_path: Path) -> None:
    """Rows in the grid's order, with equal digests; what is there is not run again."""
    grid = Grid(
        (workload(tmp_path / "w.jsonl"),), ("3x4vcores,4096memory_mb",), ("fifo", "drf"), (0, 1)
    )
    alone = run_study(grid, tmp_path / "one", workers=1)
    together = run_study(grid, tmp_path / "two", workers=2)
    assert [row["digest"] for row in alone] == [row["digest"] for row in together]
    rows = (tmp_path / "one/rows.jsonl").read_text().splitlines()
    (tmp_path / "half").mkdir()
    (tmp_path / "half/rows.jsonl").write_text(rows[2] + "\n" + rows[1][: len(rows[1]) // 2])
    heard: list[tuple[int, bool]] = []

    def told(done: int, total: int, row: dict[str, Any] | None) -> None:
        heard.append((done, row is not None))

    again = run_study(grid, tmp_path / "half", 1, told=told)
    assert [row["digest"] for row in again] == [row["digest"] for row in alone]
    assert heard == [(1, False), (2, True), (3, True), (4, True)], (
        "the run whose row was whole is not run again"
    )


HEAD = "workloads: [a]\nclusters: [b]\n"
OWN = """
from rm.match.fifo import FifoMatcher

class Mine(FifoMatcher):
    name = "mine"

    def match(self, view, node, now):
        with open("seen", "a") as out:
            out.write(f"{view.node_count} ")
        return super().match(view, node, now)
"""


@pytest.mark.slow
def test_a_matcher_of_ones_own_is_studied_and_its_kernels_are_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs as under `weft simulate`, first on two nodes that are of no row."""
    monkeypatch.chdir(tmp_path)
    Path("own_study_policy.py").write_text(OWN)
    workload(Path("w.jsonl"))
    data = {
        "workloads": ["w.jsonl"],
        "clusters": ["3x4vcores,4096memory_mb"],
        "schedulers": [
            "fifo",
            {"matcher": "own_study_policy:Mine"},
            {"scheduler": "tez", "planner": "graphene"},
        ],
    }
    Path("grid.json").write_text(json.dumps(data))
    rows = run_study(read_grid(Path("grid.json")), Path("rows"), workers=2)
    assert [row["scheduler"] for row in rows] == [
        "fifo",
        "own_study_policy:Mine+bfs+all_ready",
        "tez_g_cs",
    ]
    assert rows[0]["digest"] == rows[1]["digest"]
    seen = Path("seen").read_text().split()
    assert set(seen) == {"2", "3"}
    assert seen == sorted(seen)
    again = run_study(read_grid(Path("grid.json")), Path("rows"), workers=2)
    assert again == rows
    assert Path("seen").read_text().split() == seen, "nothing was loaded for nothing"


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_rows(tmp_path: Path) -> None:
    """The same grid on a Dask scheduler with a worker process; without one, a clear error."""
    grid = Grid(
        (workload(tmp_path / "w.jsonl"),), ("3x4vcores,4096memory_mb",), ("fifo", "drf"), (0,)
    )
    here = run_study(grid, tmp_path / "here", workers=1)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address
        there = run_study(grid, tmp_path / "there", dask=address)
    assert [row["digest"] for row in there] == [row["digest"] for row in here]
    with pytest.raises(WeftError, match="no Dask scheduler"):
        run_study(grid, tmp_path / "nowhere", dask=address)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workloads: [a]\nclusters: [b]\n", "schedulers"),
        ("workload: [a]\n", "unknown key"),
        ("workloads: a\n", "list"),
        (f"{HEAD}schedulers: ['a:B']\n", r"a matcher of your own is \{matcher: \"a:B\"\}"),
        (
            f"{HEAD}schedulers: [{{match: a}}]\n",
            "a table of asker, matcher, options, planner, scheduler",
        ),
        (f"{HEAD}schedulers: [7]\n", "a preset or a table"),
        (f"{HEAD}schedulers: [{{matcher: a, options: 7}}]\n", "options as a table"),
        ("clusters: [2x4vcores,4096memory_mb]\n", r"\[\"2x4vcores,4096memory_mb\"\]"),
        ("workloads: [7]\n", "expected texts, got 7"),
        ("options: [a]\n", "expected tables of parameters, got 'a'"),
    ],
)
def test_a_bad_grid_names_its_key(tmp_path: Path, text: str, words: str) -> None:
    """One clear error."""
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_grid(path)
