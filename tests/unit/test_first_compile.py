"""That kernels are compiled is told once, and not where their code was kept."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from numba.core import event

from lab.cli import weft
from lab.native import ROOT
from sim.process import command
from sim.process.compile_time import compiling
from weft.policies.first_compile import TEXT

JOB = """
name: j
stages:
  - {name: a, tasks: 2, duration_s: 1, demand: {vcores: 1}}
"""
KERNELS = """
from weft.policies.compiled import kernel

@kernel
def one(number):
    return number + 1

@kernel
def two(number):
    return number + 2

print(one(1), two(1))
"""


OF_WEFT = """
import numpy as np
from rm.ledger.running_kernels import remove

print(int(remove(1, 0, np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 1)))))
"""


def told(folder: Path, kept: Path, weft: Path = ROOT) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", "import own_kernels"],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(kept), "PYTHONPATH": f"{weft}:{folder}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_the_first_start_says_that_it_compiles_and_later_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    assert told(tmp_path, tmp_path / "kept") == ("2 3\n", f"{TEXT}\n")
    assert told(tmp_path, tmp_path / "kept") == ("2 3\n", "")


def test_another_checkout_finds_them_unless_a_constant_of_theirs_is_another(tmp_path: Path) -> None:
    def start(name: str, tolerance: str) -> str:
        checkout = tmp_path / name
        for floor in ("weft", "rm", "am"):
            shutil.copytree(ROOT / floor, checkout / floor, ignore=only_python)
        constants = checkout / "weft/model/resources.py"
        before = constants.read_text()
        constants.write_text(before.replace("TOLERANCE = 1e-7\n", f"TOLERANCE = {tolerance}\n"))
        (checkout / "own_kernels.py").write_text(OF_WEFT)
        said, warned = told(checkout, tmp_path / "kept", checkout)
        assert said == "0\n"
        return warned

    assert start("one", "1e-7") == f"{TEXT}\n"
    assert start("two", "1e-7") == ""
    assert start("three", "1e-6") == f"{TEXT}\n"


def only_python(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if "." in name and not name.endswith(".py")} | {"__pycache__"}


def test_what_compiling_takes_is_counted_once_where_one_compiles_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([10.0, 17.0, 20.0, 21.0])
    monkeypatch.setattr(event, "timer", lambda: next(times))
    with compiling() as told:
        with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
            pass
        with event.trigger_event("numba:compile"):
            pass
    assert told.took_s == 8.0
    with compiling() as told:
        pass
    assert told.took_s == 0.0


def test_a_simulation_is_not_blamed_for_what_was_compiled_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, took_s = command._run, []

    def slow(*arguments: Any) -> None:
        began_s = time.perf_counter()
        with event.trigger_event("numba:compile"):
            usual(*arguments)
        took_s.append(time.perf_counter() - began_s)

    monkeypatch.setattr(command, "_run", slow)
    (tmp_path / "job.yaml").write_text(JOB)
    files = [str(tmp_path / "job.yaml"), "--cluster", "1x4vcores,4096memory_mb"]
    out = ["--out", str(tmp_path / "run")]
    CliRunner().invoke(weft, ["simulate", *files, *out], catch_exceptions=False)
    assert json.loads((tmp_path / "run/summary.json").read_text())["wall_s"] < took_s[0]
