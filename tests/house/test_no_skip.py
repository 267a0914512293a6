"""The gate's rule against skips: an unlisted one fails, of a test and of a module alike."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

@pytest.mark.skipif(True, reason="no chromium on this machine")
def test_marked(): ...

def test_called():
    pytest.skip("no Ansible")

def test_listed():
    pytest.skip("needs /proc")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected():
    assert False
"""
MODULE = (
    'import pytest\npytest.importorskip("nosuchmodule", reason="nosuchmodule is not installed")'
)


def outcome(folder: Path, no_skip: str) -> str:
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_module.py").write_text(MODULE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rA",
        "--continue-on-collection-errors",
        str(folder),
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"WEFT_NO_SKIP": no_skip},
    )
    return done.stdout


@pytest.mark.slow
def test_in_the_gate_an_unlisted_skip_fails(tmp_path: Path) -> None:
    found = outcome(tmp_path, "1")
    for place in ("test_some.py::test_marked", "test_some.py::test_called", "test_module.py"):
        assert f"WEFT_NO_SKIP: {place} skips" in found, found
    assert "1 skipped" in found
    assert "1 xfailed" in found


@pytest.mark.slow
def test_elsewhere_tests_skip_with_their_reason(tmp_path: Path) -> None:
    found = outcome(tmp_path, "0")
    assert "4 skipped" in found
    assert "WEFT_NO_SKIP" not in found
