"""That kernels are compiled is told once, and not where their code was kept."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab.native import ROOT
from weft.policies.first_compile import TEXT

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
