"""Conversations with the three cores, event by event, as the files beside this one tell them.

After a change that is meant: `WEFT_RECORD=1 pytest tests/transcripts`, and read the diff.
"""

import os
from pathlib import Path

import pytest

from testkit.transcript import replay

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_a_conversation_goes_as_it_is_told(path: Path) -> None:
    told = path.read_text()
    found = replay(told)
    if os.environ.get("WEFT_RECORD"):
        path.write_text(found)
    assert found == told


def test_another_answer_is_another_text() -> None:
    """An effect that is told wrongly, or left out, does not pass."""
    told = (HERE / "node_start_and_end.txt").read_text()
    line = next(line for line in told.splitlines() if line.startswith("    Send"))
    assert replay(told.replace(line, line.replace("n1", "n2"))) == told
    assert replay(told.replace(f"{line}\n", "", 1)) == told
