"""A run's files say how its jobs ended and what was run; runs of different work are not ranked."""

import csv
import gc
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lab.cli import weft
from lab.report.comparing import gains, read_run, unranked
from lab.report.html import write_report
from lab.report.plots import STANDING_MAX, interval, plot_study
from sim.process.command import main_simulate, quiet_collector
from sim.request import Request

CLUSTER = "4x4vcores,1000memory_mb"


def job(name: str, memory_mb: float = 100, truth_mb: float | None = None) -> dict[str, Any]:
    stage: dict[str, Any] = {
        "name": "s",
        "tasks": 3,
        "duration_s": 5,
        "demand": {"vcores": 1, "memory_mb": memory_mb},
    }
    if truth_mb is not None:
        stage["actual_demand"] = {"vcores": 1, "memory_mb": truth_mb}
    return {"name": name, "stages": [stage]}


def workload(folder: Path, *jobs: dict[str, Any]) -> Path:
    path = folder / "jobs.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in jobs))
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(weft, [str(each) for each in arguments])


def test_what_a_process_froze_stays_frozen_behind_a_simulation() -> None:
    gc.freeze()
    with quiet_collector():
        pass
    assert gc.get_freeze_count() > 0


def test_a_simulation_thaws_what_it_froze_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    with quiet_collector():
        done.append("runs")
    assert done == ["collect", "freeze", "runs", "unfreeze"]


@pytest.mark.slow
def test_five_jobs_out_of_memory_are_five_failed_jobs_everywhere(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    fine = workload(tmp_path, *(job(f"j{i}") for i in range(5)))
    assert run("simulate", fine, "--cluster", CLUSTER, "--out", good).exit_code == 0
    dying = workload(tmp_path, *(job(f"j{i}", truth_mb=2000) for i in range(5)))
    told = run("simulate", dying, "--cluster", CLUSTER, "--out", bad, "--report")
    assert told.exit_code == 0
    assert "5 FAILED" in told.output
    summary = json.loads((bad / "summary.json").read_text())
    assert summary["states"] == {"FAILED": 5}
    assert summary["jct_s"]["mean"] == 0.0  # of none
    rows = list(csv.DictReader((bad / "jobs.csv").open()))
    assert [row["state"] for row in rows] == ["FAILED"] * 5
    assert "5 FAILED" in (bad / "report.html").read_text()
    told = run("compare", good, bad)
    assert "0 of 5 jobs succeeded against 5" in told.output
    assert "0/5" in told.output
    found = gains(read_run(good), read_run(bad))
    assert (found["same_work"], found["p50"], found["jobs"]) == (False, None, 0)
    write_report([good, bad], tmp_path / "both.html")


@pytest.mark.slow
def test_runs_that_finished_the_same_work_are_ranked(tmp_path: Path) -> None:
    jobs = workload(tmp_path, *(job(f"j{i}") for i in range(4)))
    for name, scheduler in (("a", "fifo"), ("b", "fair")):
        done = run(
            "simulate",
            jobs,
            "--cluster",
            CLUSTER,
            "--scheduler",
            scheduler,
            "--out",
            tmp_path / name,
        )
        assert done.exit_code == 0
    found = gains(read_run(tmp_path / "a"), read_run(tmp_path / "b"))
    assert found["same_work"]
    assert found["jobs"] == 4
    assert isinstance(found["p50"], float)


def test_gains_have_the_percentiles_of_all_other_figures(tmp_path: Path) -> None:
    """Between two jobs' gains lies what is interpolated between them, as in `summary.json`."""
    for name, times in (("a", [10.0, 10.0, 10.0, 10.0]), ("b", [9.0, 8.0, 6.0, 12.0])):
        (tmp_path / name).mkdir()
        rows = [f"{number},j,SUCCEEDED,{s},1" for number, s in enumerate(times)]
        (tmp_path / name / "jobs.csv").write_text("\n".join(["job,name,state,jct_s,tasks", *rows]))
        (tmp_path / name / "summary.json").write_text('{"jct_s": {}, "jain": {}}')
    found = gains(read_run(tmp_path / "a"), read_run(tmp_path / "b"))
    assert found["p50"] == pytest.approx(0.15)
    assert found["p25"] == pytest.approx(0.025)


@pytest.mark.slow
def test_nothing_of_an_earlier_run_stays_beside_another(tmp_path: Path) -> None:
    jobs, out = workload(tmp_path, job("j")), tmp_path / "o"
    asked = ("simulate", jobs, "--cluster", CLUSTER, "--out", out)
    assert run(*asked, "--scheduler", "graphene", "--decisions", "--report").exit_code == 0
    (out / "notes.txt").write_text("the user's own")
    assert {"report.html", "decisions.jsonl"} <= {path.name for path in out.iterdir()}
    told = run(*asked, "--scheduler", "tez")
    assert "report.html was of an earlier run and is removed" in told.output
    left = {path.name for path in out.iterdir()}
    assert not left & {"report.html", "decisions.jsonl"}
    assert {"summary.json", "notes.txt"} <= left
    assert run(*asked, "--decisions").exit_code == 0
    assert (out / "decisions.jsonl").exists()


@pytest.mark.slow
def test_a_job_that_was_still_running_is_where_it_stood(tmp_path: Path) -> None:
    jobs = workload(tmp_path, job("long"))
    done = run("simulate", jobs, "--cluster", CLUSTER, "--until", "4", "--out", tmp_path / "o")
    assert done.exit_code == 0
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert summary["states"] == {"RUNNING": 1}
    assert summary["jain"] == {"10": None, "60": None, "240": None}
    assert summary["jain_windows"] == {"10": 0, "60": 0, "240": 0}


@pytest.mark.slow
def test_jain_counts_its_windows(tmp_path: Path) -> None:
    jobs = workload(
        tmp_path,
        *(
            {
                **job(f"j{i}"),
                "stages": [
                    {
                        "name": "s",
                        "tasks": 16,
                        "duration_s": 20,
                        "demand": {"vcores": 1, "memory_mb": 1},
                    },
                ],
            }
            for i in range(2)
        ),
    )
    summary = main_simulate(Request((str(jobs),), CLUSTER))
    assert summary["jain_windows"]["10"] >= 2
    assert 0.4 < summary["jain"]["10"] <= 1.0
    assert summary["jain"]["240"] is None


@pytest.mark.slow
def test_a_summary_says_what_was_run_and_its_command_repeats_it(tmp_path: Path) -> None:
    jobs = workload(tmp_path, *(job(f"j{i}") for i in range(3)))
    out = tmp_path / "o"
    request = Request(
        (str(jobs),),
        CLUSTER,
        "graphene",
        matcher="drf",
        seed=7,
        out=str(out),
        decisions=True,
        options={"planner.thresholds": "4", "manager.master_vcores": "0.5"},
        load=2.0,
        arrivals="poisson:0.5",
        pace="prompt",
        faults="random:3:20",
        until_s=900.0,
    )
    summary = main_simulate(request)
    assert summary["scheduler"] == "drf+graphene+all_ready"
    strict = {"lend": True, "share": "closed_form"}
    assert summary["matcher"] == {"name": "drf", "parameters": strict}
    assert summary["planner"]["parameters"]["thresholds"] == 4
    assert summary["planner"]["parameters"]["bound"] == "fast"
    assert summary["asker"] == {
        "name": "all_ready",
        "parameters": {"container": "task", "sees": ""},
    }
    assert summary["settings"]["manager"]["master_demand"]["vcores"] == 0.5
    assert summary["settings"]["manager"]["prompt"] is True
    assert summary["workload"]["files"][0]["path"] == str(jobs)
    assert len(summary["workload"]["files"][0]["sha256"]) == 64
    assert summary["cluster"]["nodes"][0]["count"] == 2
    assert summary["cluster"]["resources"] == {"vcores": "divisible", "memory_mb": "rigid"}
    assert summary["faults"]["script"]
    assert (summary["load"], summary["pace"]) == (2.0, "prompt")
    assert summary["version"]["weft"]
    first = json.loads((out / "decisions.jsonl").read_text().splitlines()[0])
    assert first["fact"] == "RunDescribed"
    assert first["matcher"] == summary["matcher"]
    again = tmp_path / "again"
    words = shlex.split(summary["command"])
    assert words[0] == "weft"
    assert run(*words[1:], "--out", again).exit_code == 0
    assert json.loads((again / "summary.json").read_text())["digest"] == summary["digest"]


@pytest.mark.slow
def test_labels_follow_the_parts_that_ran(tmp_path: Path) -> None:
    jobs = workload(tmp_path, job("j"))
    for changes, wanted in (
        ({}, "capacity"),
        ({"matcher": "drf"}, "drf"),
        ({"planner": "critical_path"}, "tez_cp"),
        ({"planner": "random"}, "capacity+random+all_ready"),
    ):
        assert main_simulate(Request((str(jobs),), CLUSTER, **changes))["scheduler"] == wanted


@pytest.mark.slow
def test_what_masters_hold_is_reported_and_settable(tmp_path: Path) -> None:
    jobs = workload(tmp_path, job("j"))
    held = {}
    for vcores in ("0", "1", "2"):
        options = {"manager.master_vcores": vcores}
        held[vcores] = main_simulate(Request((str(jobs),), CLUSTER, options=options))["masters"]
    assert held["0"]["vcores"] == 0.0
    # one master of one job holds 1 of 16 vcores for nearly all of the makespan
    assert 0.03 < held["1"]["vcores"] < 1 / 16 + 1e-9
    assert held["2"]["vcores"] == pytest.approx(2 * held["1"]["vcores"], rel=0.2)


@pytest.mark.slow
def test_plots_of_compare_and_of_a_study(tmp_path: Path) -> None:
    jobs = workload(tmp_path, *(job(f"j{i}") for i in range(4)))
    for name, scheduler in (("a", "fifo"), ("b", "fair")):
        out = tmp_path / name
        done = run("simulate", jobs, "--cluster", CLUSTER, "--scheduler", scheduler, "--out", out)
        assert done.exit_code == 0
    picture = tmp_path / "c.svg"
    assert run("compare", tmp_path / "a", tmp_path / "b", "--plot", picture).exit_code == 0
    assert picture.read_text().count('id="line2d') > 4
    grid = tmp_path / "grid.json"
    grid.write_text(
        json.dumps(
            {
                "workloads": [str(jobs)],
                "clusters": [CLUSTER],
                "schedulers": ["fifo", "fair"],
                "seeds": [1, 2],
                "options": [{}, {"manager.heartbeat_s": 2}],
            }
        )
    )
    study = tmp_path / "s.png"
    done = run("study", grid, "--out", tmp_path / "rows", "--workers", 1, "--plot", study)
    assert done.exit_code == 0, done.output
    assert study.read_bytes().startswith(b"\x89PNG")
    assert re.search(r"scheduler +options +seed", done.output)
    assert len(re.findall(r"fair +manager.heartbeat_s=2 +\d", done.output)) == 2
    row = json.loads((tmp_path / "rows" / "rows.jsonl").read_text().splitlines()[0])
    assert row["cluster"] == CLUSTER
    assert row["run"]["workload"]["files"][0]["sha256"]


@pytest.mark.parametrize("bars", [STANDING_MAX, STANDING_MAX + 1])
def test_the_bars_of_a_study_have_whole_names(tmp_path: Path, bars: int) -> None:
    same = {"workload": "w.jsonl", "cluster": CLUSTER, "load": 1.0, "arrivals": "file"}
    rows = [
        same
        | {"scheduler": "tez", "estimate_error": None, "options": {"matcher.slack": str(number)}}
        | {"jct_s": {"mean": 9.0}, "makespan_s": 20.0, "jobs": 1}
        for number in range(bars)
    ]
    plot_study(rows, tmp_path / "s.svg")
    text = (tmp_path / "s.svg").read_text()
    assert all(f"<!-- tez, matcher.slack={number} -->" in text for number in range(bars))


def test_an_interval_is_students() -> None:
    values = np.array([10.0, 12.0, 11.0, 13.0])
    assert interval(values) == pytest.approx(3.182 * values.std(ddof=1) / 2)
    assert interval(values[:1]) == 0.0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    assert "_WEFT_COMPLETE" in run("completion", shell).output


def test_a_shell_completes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_WEFT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "weft expl")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        weft.main(["weft"], standalone_mode=False, complete_var="_WEFT_COMPLETE")


@pytest.mark.slow
def test_a_run_in_which_no_job_succeeded_has_no_completion_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = {"name": "a", "tasks": 1, "duration_s": 3, "demand": {"vcores": 1, "memory_mb": 64}}
    stage["actual_demand"] = {"vcores": 1, "memory_mb": 9000}
    (tmp_path / "j.json").write_text(json.dumps({"name": "j", "stages": [stage]}))
    monkeypatch.chdir(tmp_path)
    weft(["simulate", "j.json", "--cluster", "1x4vcores,4096memory_mb"], standalone_mode=False)
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[1] == "0/1"
    assert row[4:7] == ["-", "-", "-"]


def study_row(scheduler: str, states: dict[str, int], work: str | None = "") -> dict[str, Any]:
    known = {} if work is None else {"work": work}
    return {
        "workload": "w.jsonl",
        "cluster": CLUSTER,
        "scheduler": scheduler,
        "load": 1.0,
        "arrivals": "file",
        "estimate_error": "-0.25:0.25",
        "options": {},
        "jobs": 12,
        "states": states,
        "jct_s": {"mean": 9.0},
        "makespan_s": 20.0,
        **known,
    }


def test_rows_of_a_study_that_finished_less_are_not_ranked(tmp_path: Path) -> None:
    rows = [
        study_row("tez", {"FAILED": 3, "SUCCEEDED": 9}),
        study_row("graphene", {"SUCCEEDED": 12}),
        study_row("fifo", {"SUCCEEDED": 12}, None),
    ]
    assert unranked(rows) == ["other work: 9 of 12 jobs succeeded against 12", "", ""]
    plot_study(rows, tmp_path / "s.svg")
    text = (tmp_path / "s.svg").read_text()
    assert "not ranked: 9 of 12 jobs succeeded" in text
    assert text.count("succeeded -->") == 1


def test_rows_of_a_study_are_ranked_where_the_same_jobs_could_not_run() -> None:
    ends = {"FAILED": 1, "SUCCEEDED": 11}
    same = [study_row("tez", ends, "a"), study_row("fifo", ends, "a")]
    assert unranked(same) == ["", ""]
    assert unranked([*same, study_row("drf", ends, "b")])[2]
    assert unranked([*same, study_row("drf", ends, None)])[2], "nobody knows which"


@pytest.mark.slow
def test_a_study_says_how_many_jobs_succeeded_and_why_others_may_not(tmp_path: Path) -> None:
    jobs = workload(tmp_path, *(job(f"j{i}", memory_mb=600) for i in range(4)))
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        f'workloads: ["{jobs}"]\nclusters: ["{CLUSTER}"]\nschedulers: [fifo]\n'
        'estimate_errors: ["0:0", "-0.9:-0.9"]\n'
    )
    told = run("study", grid, "--out", tmp_path / "rows", "--workers", 1)
    assert re.search(r"fifo +0:0 +0 +4/4 .* yes\n", told.output)
    assert re.search(r"-0.9:-0.9 +0 .* no\n", told.output)
    assert "OUT_OF_MEMORY" in told.stderr
    low = ("simulate", jobs, "--cluster", CLUSTER, "--estimate-error", "-0.9:-0.9")
    assert " FAILED: tasks whose memory is estimated too low" in run(*low).stderr


@pytest.mark.slow
def test_a_report_of_runs_that_finished_different_work_ranks_none(tmp_path: Path) -> None:
    out = [tmp_path / name for name in "ab"]
    for folder, truth_mb in zip(out, (100, 2000), strict=True):
        jobs = workload(tmp_path, job("j0"), job("j1", truth_mb=truth_mb))
        run("simulate", jobs, "--cluster", CLUSTER, "--out", folder)
    page = write_report(out, tmp_path / "r.html").read_text()
    assert "<th>ranked</th>" in page
    assert "<td>no: other work: 1 of 2 jobs succeeded against 2" in page
    assert "ranked" not in write_report(out[:1]).read_text()


@pytest.mark.slow
def test_a_schedulers_own_options_and_two_of_one_name_stay_apart(tmp_path: Path) -> None:
    jobs = workload(tmp_path, job("j"))
    schedulers = [
        "tez_cp",
        {"scheduler": "tez_p90", "planner": "critical_path"},
        {"matcher": "tetris"},
        {"matcher": "tetris", "options": {"matcher.fairness": 1}},
    ]
    grid = {"workloads": [str(jobs)], "clusters": [CLUSTER], "schedulers": schedulers}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    told = run("study", tmp_path / "grid.json", "--out", tmp_path / "rows", "--workers", 1)
    names = [line.split()[1:3] for line in told.stdout.splitlines()[1:]]
    assert names == [
        ["tez_cp", "-"],
        ["tez_p90+critical_path", "-"],
        ["tetris", "-"],
        ["tetris", "matcher.fairness=1"],
    ]
