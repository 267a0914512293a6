"""Carbyne's study goes on where it was stopped, and prints and draws what it found."""

import os
import sys
from pathlib import Path

import pytest

from lab.studies import carbyne as carbyne_study
from lab.studies.grid import kept_rows

DATA = Path(os.environ.get("WEFT_DATA", "../shared/data")) / "carbyne-workloads"


def test_rows_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    """A run that was cut off in the middle of its line is made again, the others are not."""
    path, made = tmp_path / "new" / "rows.jsonl", []

    def make(name: str) -> dict[str, str]:
        made.append(name)
        return {"name": name}

    makes = {name: lambda name=name: make(name) for name in "ab"}
    first = kept_rows(path, makes)
    assert [row["name"] for row in first] == made == ["a", "b"]
    assert kept_rows(path, {**makes, "c": lambda: make("c")})[:2] == first
    assert made == ["a", "b", "c"]
    path.write_text(path.read_text()[:-10])
    assert [row["name"] for row in kept_rows(path, {"a": makes["a"], "c": lambda: make("c")})] == [
        "a",
        "c",
    ]
    assert made == ["a", "b", "c", "c"]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")
def test_a_sweep_of_few_jobs_prints_its_table_and_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, plot = tmp_path / "rows.jsonl", tmp_path / "altruism.png"
    words = ["study", "altruism", "--jobs", "3", "--rows", str(rows), "--plot", str(plot)]
    monkeypatch.setattr(sys, "argv", words)
    carbyne_study.main()
    first = capsys.readouterr().out
    assert first.count("\n#") + first.startswith("#") == len(carbyne_study.ALTRUISM) + 2
    assert plot.read_bytes().startswith(b"\x89PNG")
    carbyne_study.main()
    again = capsys.readouterr().out
    assert "#" not in again
    assert again.strip() == first[first.index("\nTPC-DS") :].strip()
