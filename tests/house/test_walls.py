"""Plant what the walls forbid: `make check` must say so."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import figures

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("weft", "rm", "am", "nm", "sim", "lab", "testkit")
PLANTED = {
    "am/demands.py": "import socket\n",
    "am/work.py": "import http\n",  # what is not known to be harmless is forbidden
    "rm/placing/preempt.py": "import aiohttp\n",
    "nm/emulation.py": "def planted():\n    import select\n",
    "rm/ledger/asks.py": "from rm.process import service\n",
    "rm/ledger/view.py": "import time\n",
    "nm/runner.py": "from weft.runtime import shell\n",
    "weft/model/ids.py": "import random\n",
    "sim/engine.py": "import threading\n",
    "rm/fresh.py": "import os\n",  # a new module is on the pure side unless it is in `process`
    "weft/fresh.py": "import asyncio\n",
    "rm/match/fifo.py": "from rm.match import drf\n",
    "am/plan/heft.py": "from am.plan import bfs\n",
    "weft/workloads/jobs_file.py": "from weft.workloads import psplib\n",
    "am/gangs.py": "from rm import masters\n",
    "rm/clients.py": "from rm.match import sjf\n",
    "testkit/meetings/judge.py": "from rm import settings\n",
}


@pytest.mark.slow
def test_every_wall_stops_what_it_is_for(tmp_path: Path) -> None:
    """One run over a copy of the code with a fault for each wall names every one of them."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            tmp_path / package,
            ignore=shutil.ignore_patterns(
                "__pycache__",
                "static",
                "samples",
            ),
        )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/walls.py", tmp_path / "tools")
    for name, line in PLANTED.items():
        path = tmp_path / name
        text = path.read_text() if path.exists() else '"""Planted."""\n'
        path.write_text(f"{text}\n{line}")
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [linter, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for name, line in PLANTED.items():
        module = name.removesuffix(".py").replace("/", ".")
        words = line.removeprefix("def planted():").split()
        target = ".".join((words[1], *words[3:])) if words[0] == "from" else words[1]
        assert f"{module} -> {target}" in done.stdout, done.stdout


# what only a string says: import-linter does not see it
UPWARDS = {
    "weft/__init__.py": "lab.functions",
    "weft/gym/__init__.py": "lab.learning.gym",
    "am/plan/registry.py": "am.plan.heft",
}
WORLDLY_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
GLOBAL_CHANCE = r"np\.random\.(?!Generator|default_rng)\w+"


@pytest.mark.slow
def test_pure_code_reaches_the_world_by_no_other_way() -> None:
    """Neither by a module that it names in a string, nor by a builtin, nor by global chance."""
    named, called = {}, []
    for source in figures.sources():
        if not source.is_pure:
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call):
                bare = getattr(node.func, "id", "")
                name = bare or getattr(node.func, "attr", "")
                if bare in WORLDLY_CALLS:
                    called.append(f"{source.name}:{node.lineno} {bare}")
                elif name.endswith("import_module") and isinstance(node.args[0], ast.Constant):
                    named[source.name] = node.args[0].value
            elif isinstance(node, ast.Attribute) and getattr(node.value, "attr", "") == "random":
                text = ast.unparse(node)
                if re.fullmatch(GLOBAL_CHANCE, text):
                    called.append(f"{source.name}:{node.lineno} {text}")
    assert not called
    assert named == UPWARDS


@pytest.mark.slow
def test_only_the_ledger_writes_into_its_tables() -> None:
    """What policies and the rest of the manager see of `rm/ledger` is to be read."""
    writers = {
        "close",
        "compact",
        "grow_to",
        "hide",
        "let_go_by",
        "open",
        "put_back",
        "relabel",
        "served",
        "set_aside",
        "show",
        "take",
        "w",
        "write",
    }
    for source in figures.sources():
        if source.name.startswith(("rm/ledger/", "lab/", "weft/")):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute):
                place = f"{source.name}:{node.lineno}"
                assert node.attr != "w", place
                read_only = source.name.startswith("rm/match/")
                owner = ast.unparse(node.value).split(".")[-1]
                assert not (read_only and owner == "rows" and node.attr in writers), place
