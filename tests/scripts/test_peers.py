"""What other systems do stands beside what Weft does, comparable whichever machine it was."""

import pytest

from lab.bench import dask as bench_dask
from lab.bench import live as bench_live
from lab.bench import peers
from lab.bench import sim as bench_sim
from weft.model.errors import InputError


def test_each_figure_of_a_peer_is_of_a_case_that_is_measured() -> None:
    with pytest.raises(InputError) as told:
        bench_live.run(only="no case is called so")
    cases = {*bench_sim.CASES, *str(told.value).partition("there are: ")[2].split("; ")}
    kept = peers.PEERS.read_text("utf-8").splitlines()
    rows = peers.rows_of(cases)
    assert len(rows) == len(kept) > 0
    assert all(row["loops"] and row["measured"] for row in rows)


def test_a_figure_is_told_in_events_of_a_bare_simulator_of_its_own_machine() -> None:
    name = "TPC-H, 50 one-slot executors, 200 jobs, fifo"
    (decima,) = (row for row in peers.rows_of({name}) if "decima" in str(row["peer"]))
    assert decima["loops"] == pytest.approx(1e6 / 142_000 / 0.97, abs=0.05)
    assert peers.in_loops(17.0, 0.85) == {"loop_us": 0.85, "loops": 20.0}


def test_beside_an_installed_wheel_there_are_none(tmp_path) -> None:
    assert peers.rows_of({"emulated hosts"}, tmp_path / "peers.jsonl") == []


@pytest.mark.slow
def test_a_case_of_the_bench_tells_the_loop_of_the_same_process() -> None:
    row = bench_sim.case("capacity, 10,000 tasks")
    assert row["loops"] == pytest.approx(row["us_per_task"] / row["loop_us"], rel=0.02)


@pytest.mark.slow
def test_dask_runs_from_a_folder_that_has_a_package_of_the_labs_name(tmp_path, monkeypatch) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "lab/bench").mkdir(parents=True)
    (tmp_path / "lab/__init__.py").touch()
    (tmp_path / "lab/bench/__init__.py").touch()
    (tmp_path / "lab/bench/dask.py").write_text("raise RuntimeError('another one')\n")
    monkeypatch.chdir(tmp_path)
    row = bench_dask.measure("Dask", 2, 10)
    assert (row.get("skipped"), row.get("tasks")) == (None, 20)
