"""The reader of worked examples itself: every family is read, every key must be."""

from pathlib import Path
from typing import Any

import pytest

from testkit.examples import FAMILIES, Table, load, reading

HERE = Path(__file__).parent
CASE = {
    "id": "x",
    "family": "eta",
    "input": {"a": 1, "b": [{"c": 2, "why": "so"}]},
    "expected": {},
    "tolerance": {},
}


def test_every_family_has_a_reader() -> None:
    """A family without a test would be passed over in silence."""
    assert {case["family"] for case in load()} <= set(FAMILIES)
    readers = "".join(path.read_text() for path in HERE.glob("test_*golden_*.py"))
    assert [family for family in FAMILIES if f'"{family}"' not in readers] == []
    assert {case["family"] for case in load(HERE / "data")} == set(FAMILIES)


def read_some(case: dict[str, Any], *keys: str) -> None:
    """Read keys of the input, and of its list the words only."""
    with reading(case) as (given, _, _):
        for key in keys:
            assert given[key]
        if "b" in keys:
            given["b"][0].prose("why")


def test_a_key_that_is_not_read_fails() -> None:
    """Named with its place, however deep it lies."""
    with pytest.raises(AssertionError, match=r"input\.b\[0\]\.c"):
        read_some(CASE, "a", "b")
    with pytest.raises(AssertionError, match=r"input\.a, input\.b\[0\]\.c"):
        read_some(CASE, "b")


def test_only_words_may_be_passed_over() -> None:
    """A number is no prose."""
    with pytest.raises(AssertionError, match="more than words"):
        Table({"a": 1}).prose("a")


def test_an_unknown_part_fails() -> None:
    with pytest.raises(AssertionError, match="unknown parts"):
        read_some({**CASE, "extra": {}})
