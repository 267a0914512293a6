"""That kernels are compiled is told once, and not where their code was kept."""

import os
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


def said(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import own_kernels"],
        cwd=folder,
        env=os.environ
        | {"NUMBA_CACHE_DIR": str(folder / "kept"), "PYTHONPATH": f"{ROOT}:{folder}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2 3\n"
    return done.stderr


def test_the_first_start_says_that_it_compiles_and_later_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    assert said(tmp_path) == f"{TEXT}\n"
    assert said(tmp_path) == ""
