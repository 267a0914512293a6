"""What a run taught is there for the next one, in this process and in others."""

from pathlib import Path

import pytest

from am.process.history import HistoryFile
from weft.model.errors import WeftError

RUN = {"s0": {"run_s": 4.0, "tasks": 10.0, "input_mb": 100.0}}
SLOWER = {"s0": {"run_s": 6.0, "tasks": 10.0, "input_mb": 100.0}}


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    one, other = (HistoryFile(tmp_path / "history.json") for _ in range(2))
    one.add("q1", RUN)
    other.add("q2", SLOWER)
    other.add("q1", SLOWER)
    assert one.read()["q1"]["s0"]["run_s"] == 5.0
    assert set(one.read()) == {"q1", "q2"}


def test_without_a_file_it_lasts_as_long_as_the_process() -> None:
    book = HistoryFile()
    book.add("", RUN)
    book.add("q1", {})
    assert book.read() == {}
    book.add("q1", RUN)
    assert book.read() == {"q1": RUN}


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_history_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    with pytest.raises(WeftError, match=r"history\.json"):
        HistoryFile(path)
