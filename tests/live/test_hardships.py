"""What hosts do to a cluster, in short: `make hardships` does each at length."""

import os
import shutil
from pathlib import Path

import pytest

from tools.hardships import HARDSHIPS

NEEDS = {"full": "mount", "journal": "mount", "members": "etcd", "split": "etcd"}


@pytest.mark.parametrize("name", sorted(HARDSHIPS.keys() - {"processes"}))
def test_no_promise_breaks(name: str, tmp_path: Path) -> None:
    """What leaves many processes is in `test_isolation.py` and `test_limits.py`."""
    tool = NEEDS.get(name, "")
    if tool and (not shutil.which(tool) or (tool == "mount" and os.geteuid() != 0)):
        pytest.skip(f"this needs {tool}")
    assert not HARDSHIPS[name](tmp_path / name, short=True)
