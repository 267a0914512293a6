"""The journal keeps what it said is durable, whatever happens to its last line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rm.process.store import Journal
from weft.errors import WeftError


def test_records_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([{"n": 1}, {"n": 2, "text": "zwei\n"}])
    journal.append([{"n": 3}])
    journal.close()
    again = Journal(tmp_path)
    assert again.read() == [{"n": 1}, {"n": 2, "text": "zwei\n"}, {"n": 3}]
    again.append([{"n": 4}])
    again.close()
    last = Journal(tmp_path)
    assert [r["n"] for r in last.read()] == [1, 2, 3, 4]
    last.close()


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path)
    journal.append([{"n": 1}, {"n": 2}, {"text": "a longer record"}])
    journal.close()
    path = tmp_path / "journal.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    again = Journal(tmp_path)
    assert again.read() == [{"n": 1}, {"n": 2}]
    again.append([{"n": 3}])
    again.close()
    last = Journal(tmp_path)
    assert last.read() == [{"n": 1}, {"n": 2}, {"n": 3}]
    last.close()


def test_damage_in_the_middle_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"n": 1}\n{"n"\n{"n": 3}\n')
    journal = Journal(tmp_path)
    with pytest.raises(WeftError, match="line 2"):
        journal.read()
    journal.close()


def test_it_is_compacted_when_read_and_when_it_grew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.process.store.GROWTH_BYTES", 1000)
    journal = Journal(tmp_path, lambda records: list(records)[-1:])
    for n in range(500):
        journal.append([{"n": n}])
    assert (tmp_path / "journal.jsonl").stat().st_size < 2000
    assert journal.read() == [{"n": 499}]
    journal.close()


def test_two_managers_cannot_share_a_folder(tmp_path: Path) -> None:
    code = "import pathlib, sys, rm.process.store as s; s.Journal(pathlib.Path(sys.argv[1]))"
    journal = Journal(tmp_path)
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "in use by another Resource Manager" in other.stderr
    journal.close()


def test_the_start_of_the_cluster_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.cluster_ts(123) == 123
    journal.close()
    again = Journal(tmp_path)
    assert again.cluster_ts(456) == 123
    again.close()
