"""Compile the hot cores with mypyc: `build/native` then holds the same packages, only faster.

    make native
    PYTHONPATH=build/native .venv/bin/weft simulate ...

The code is the same, and so are its decisions (`tools/check_native.py`); the checkout itself stays
plain Python, so that an edit never meets a stale library. Needs a C compiler.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from lab.native import PACKAGES, STAMP, sources_digest
from tools.native_sources import enums_of, fix_constants, write_out_records

ROOT = Path(__file__).resolve().parents[1]
# What every event of a simulation or a service passes through. Kernels stay numba's.
MODULES = {
    "weft/model": "ids job",
    "weft/protocol": "effects facts lifecycle messages outbox",
    "rm": "applications containers core settings",
    "rm/masters": "accepting asking ending",
    "rm/nodes": "registering reporting silence",
    "rm/placing": "allocation reserve",
    "rm/state": "books records",
    "rm/ledger": "asks columns ledger queues running view",
    "rm/match": "aligned candidates capacity carbyne dominant drf fair fairness fifo graphene"
    " protocol sjf tetris turns",
    "am": "asking core demands estimates failures gangs job_state launching pool progress"
    " recorded reuse settings single takeover task_groups work",
    "nm": "containers core emulation runner settings",
    "sim": "cluster engine heartbeat_elision heartbeat_order network recorder",
    "sim/replay": "fork predict recorded_delays",
}
BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup

setup(
    name="weft-native",
    packages=[],
    ext_modules=mypycify(
        ["--config-file", "pyproject.toml", *sys.argv.pop().split()],
        opt_level="2", debug_level="0", group_name="weft.native",
    ),
)
"""


def make(folder: Path) -> None:
    """Fill a folder with the packages, the hot modules compiled beside their sources."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    stamp = sources_digest(folder)
    files = [f"{at}/{name}.py" for at, names in MODULES.items() for name in names.split()]
    enums = enums_of(folder)
    for file in files:
        fix_constants(folder / file, enums)
        write_out_records(folder / file)
    command = [sys.executable, "-c", BUILD, "--quiet", "build_ext", "--inplace", " ".join(files)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder)
        raise SystemExit(f"native build failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    for left in ("build", ".mypy_cache", "weft_native.egg-info"):
        shutil.rmtree(folder / left, ignore_errors=True)
    (folder / "pyproject.toml").unlink()
    (folder / STAMP).write_text(stamp + "\n")


if __name__ == "__main__":
    make(ROOT / "build/native")
    print("build/native is ready: PYTHONPATH=build/native .venv/bin/weft ...")
