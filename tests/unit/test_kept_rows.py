"""A study continues where it was stopped."""

from pathlib import Path

from lab.studies.grid import kept_rows


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
