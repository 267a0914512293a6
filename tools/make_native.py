"""Compile the hot cores with mypyc: `build/native` then holds the same packages, only faster.

    make native
    PYTHONPATH=build/native .venv/bin/weft simulate ...

The code is the same, and so are its decisions (`tools/check_native.py`); the checkout itself stays
plain Python, so that an edit never meets a stale library. Needs a C compiler.
"""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab.native import PACKAGES, STAMP, sources_digest

ROOT = Path(__file__).resolve().parents[1]
# What every event of a simulation or a service passes through. Kernels stay numba's.
MODULES = {
    "weft": "effects facts ids job lifecycle messages outbox",
    "rm": "applications containers core settings",
    "rm/masters": "accepting asking ending",
    "rm/nodes": "registering reporting silence",
    "rm/placing": "allocation reserve",
    "rm/state": "books records",
    "rm/ledger": "asks ledger running view",
    "rm/match": "aligned candidates capacity carbyne dominant drf fair fairness fifo graphene"
    " protocol sjf tetris turns",
    "am": "asking core demands estimates job_state launching pool progress"
    " reuse settings single task_groups work",
    "nm": "containers core emulation runner settings",
    "sim": "cluster engine fork idle measured network predict recorder",
}
CONSTANT = re.compile("_?[A-Z][A-Z0-9_]+")
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
    for at, names in MODULES.items():
        for name in names.split():
            fix_constants(folder / at / f"{name}.py")
            write_out_records(folder / at / f"{name}.py")
    files = " ".join(f"{at}/{name}.py" for at, names in MODULES.items() for name in names.split())
    command = [sys.executable, "-c", BUILD, "--quiet", "build_ext", "--inplace", files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder)
        raise SystemExit(f"native build failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    for left in ("build", ".mypy_cache", "weft_native.egg-info"):
        shutil.rmtree(folder / left, ignore_errors=True)
    (folder / "pyproject.toml").unlink()
    (folder / STAMP).write_text(stamp + "\n")


def fix_constants(path: Path) -> None:
    """Tell the compiler that constants never change; have frozen classes be plain.

    It then writes numbers and texts in where they are used; else each use looks the name up in the
    module. A class with slots would be another one than the one that was compiled, and a frozen one
    that is compiled cannot be unpickled.
    """
    text = path.read_text()
    lines = text.splitlines()
    for made in ast.parse(text).body:
        if not isinstance(made, ast.Assign) or ast.unparse(made.value).startswith("TypeVar("):
            continue
        at, target, value = made.lineno - 1, made.targets[0], made.value
        if isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id):
            lines[at] = lines[at].replace(" =", ": Final_ =", 1)
        elif isinstance(target, ast.Tuple) and ast.unparse(value).startswith("range("):
            names = map(ast.unparse, target.elts)
            lines[at] = "; ".join(f"{name}: Final_ = {n}" for n, name in enumerate(names))
    first = next(n for n, line in enumerate(lines) if line.startswith(("import ", "from ")))
    lines.insert(first, "from typing import Final as Final_")
    plain = "\n".join(lines).replace("(frozen=True, slots=True)", "(unsafe_hash=True)")
    path.write_text(plain + "\n")


def write_out_records(path: Path) -> None:
    """Give the records of a module (`weft.record`) an `__init__` that can be compiled.

    The one that `dataclass` makes at run time stays interpreted, which makes a record ten times as
    slow to make as one of a class whose `__init__` is compiled with it.
    """
    tree = ast.parse(path.read_text())
    records = [
        one for one in tree.body
        if isinstance(one, ast.ClassDef) and "record" in map(ast.unparse, one.decorator_list)
    ]  # fmt: skip
    if not records:
        return
    tree.body.insert(1, ast.parse("from dataclasses import dataclass").body[0])  # after the text
    for made in records:
        made.decorator_list = [
            ast.parse("dataclass(init=False, unsafe_hash=True)", mode="eval").body
        ]
        fields = [one for one in made.body if isinstance(one, ast.AnnAssign)]
        parameters = ["self", *map(ast.unparse, fields)]
        for field in fields:
            field.value = None
        names = [ast.unparse(field.target) for field in fields]
        body = "; ".join(f"self.{name} = {name}" for name in names) or "pass"
        made.body += ast.parse(f"def __init__({', '.join(parameters)}) -> None: {body}").body
    path.write_text(ast.unparse(tree))


if __name__ == "__main__":
    make(ROOT / "build/native")
    print("build/native is ready: PYTHONPATH=build/native .venv/bin/weft ...")
