"""The services that the benchmark compares with check nothing, and those that users start do."""

import subprocess
import sys
from pathlib import Path

import pytest

ROLE = """
import sys
from weft.protocol.messages import NodeUnregistered
from weft.wire import rules
from weft.wire.validator import Gate
bad, gate = NodeUnregistered(""), Gate()
print(rules.problem_of(bad, 2), gate.passes(bad, 2, "p"), gate.sift([bad], 2, "p") == [bad])
print(__name__, sys.argv[1:])
"""
MANAGER = """
from rm.process.trust import Trust
from weft.protocol.messages import Container, ContainersGranted
from weft.wire.tokens import KeysTold, Keys
trust = object.__new__(Trust)
trust.keys = Keys(0.0, lambda size: bytes(size))
told = trust.of_node("n1")
first = 1 << 40 | 1 << 32
made = trust.along(ContainersGranted(257, 1, (), (Container(first, "n1", 1, count=3),)))
print(len(made), any(isinstance(one, KeysTold) for one in told))
"""


@pytest.mark.slow
def test_a_role_runs_with_its_flags_and_refuses_nothing(tmp_path: Path) -> None:
    (tmp_path / "role.py").write_text(ROLE)

    def run(*how: str) -> list[str]:
        code = [sys.executable, "-m", *how, "role", "--port", "1"]
        done = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert run("lab.bench.unchecked", "gates") == ["None True True", "__main__ ['--port', '1']"]
    assert run() == ["node_id: must not be empty False False", "__main__ ['--port', '1']"]


@pytest.mark.slow
def test_a_manager_makes_no_tokens_for_containers(tmp_path: Path) -> None:
    (tmp_path / "manager.py").write_text(MANAGER)

    def run(*how: str) -> str:
        code = [sys.executable, "-m", *how, "manager"]
        return subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert run("lab.bench.unchecked", "tokens") == "0 False\n"
    assert run() == "1 True\n"
