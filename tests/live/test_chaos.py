"""Live chaos in short: killed and paused parts cost no job its end, and no task its success."""

from pathlib import Path

import pytest

from tools.chaos import run


@pytest.mark.parametrize("mode", ["process", "emulated"])
def test_what_is_killed_and_paused_at_random_loses_nothing(mode: str, tmp_path: Path) -> None:
    """`make chaos` does it for ten minutes, with pauses of three times that."""
    chaos, wrong = run(tmp_path, mode, seconds=0.0, seed=3, expiry_s=2.0, breaks=14)
    assert not wrong, chaos.causes
    assert chaos.events["jobs"] > 0
