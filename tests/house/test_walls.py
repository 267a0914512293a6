"""Plant what the walls forbid: `make check` must say so."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

from tools import figures

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("weft", "rm", "am", "nm", "sim", "lab")
PLANTED = {
    "am/demands.py": "import socket\n",
    "rm/ledger/view.py": "import time\n",
    "nm/runner.py": "from weft.live import shell\n",
    "weft/ids.py": "import random\n",
    "sim/engine.py": "import threading\n",
    "rm/fresh.py": "import os\n",  # a new module is on the pure side unless it is in `process`
    "weft/fresh.py": "import asyncio\n",
    "rm/match/fifo.py": "from rm.match import drf\n",
    "am/gangs.py": "from rm import masters\n",
}


def test_every_wall_stops_what_it_is_for(tmp_path: Path) -> None:
    """One run over a copy of the code with a fault for each wall names every one of them."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns(
            "__pycache__", "static", "samples",
        ))  # fmt: skip
    shutil.copy(ROOT / ".importlinter", tmp_path)
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
        words = line.split()
        target = ".".join((words[1], *words[3:])) if words[0] == "from" else words[1]
        assert f"{module} -> {target}" in done.stdout, done.stdout


def test_only_the_ledger_writes_into_its_tables() -> None:
    """What policies and the rest of the manager see of `rm/ledger` is to be read."""
    writers = {
        "close", "compact", "grow_to", "hide", "let_go_by", "open", "put_back", "relabel", "served",
        "set_aside", "show", "take", "w", "write",
    }  # fmt: skip
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
