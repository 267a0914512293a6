"""Which mutants are drawn, and what is said of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools import mutants

pytest.importorskip("cosmic_ray", reason="needs weft-rm[dev]")

CODE = """
from functools import partial


@wraps(number=3 + 4)
def grow(count, limit=7):
    total = 0
    for i in range(count):
        if i % 2 == 0 and total < limit:
            total += i * 3
    return total


def load(held):
    return partial(direct(grow, held, 1 + 2, -5), 9)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "one.py"
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "DECIDES", ("one.py",))
    yield file
    forget()


def forget() -> None:
    for cached in (mutants.source, mutants.names, mutants.places, mutants.unseen):
        cached.cache_clear()


def drawn(file: Path, text: str, count: int = 8) -> list[mutants.Mutant]:
    file.write_text(text)
    forget()
    return mutants.sample(count, 1)


def test_a_change_elsewhere_leaves_the_sample_as_it_is(place: Path) -> None:
    before = drawn(place, CODE)
    after = drawn(place, '"""Told at length.\n\nIn three lines."""\n' + CODE)
    assert [one.name for one in after] == [one.name for one in before]
    assert [one.line for one in after] == [one.line + 3 for one in before]
    more = drawn(place, "def other(a):\n    return a + 1 < 5\n" + CODE)
    assert more != before
    stayed = {one.name for one in more} & {one.name for one in before}
    assert len(stayed) >= len(before) - 4  # as many places as are new, at most


def test_no_place_is_drawn_twice_and_another_seed_draws_others(place: Path) -> None:
    every = drawn(place, CODE, 1000)
    assert len({one.name.rsplit("|", 2)[0] for one in every}) == len(every)
    assert [one.name for one in mutants.sample(8, 2)] != [one.name for one in every[:8]]


def test_decorators_and_the_compiler_s_examples_are_left_out(place: Path) -> None:
    lines = {text: at + 1 for at, text in enumerate(CODE.splitlines())}
    every = [one for changes in _places(place) for one in changes]
    assert not [one for one in every if one.line == lines["@wraps(number=3 + 4)"]]
    after = [mutants.changed(one, place.parent)[1] for one in every]
    assert all("direct(grow, held, 1 + 2, -5)" in text for text in after)
    assert any("direct(grow, held, 1 + 2, -5), 10)" in text for text in after)


def _places(place: Path) -> Any:
    drawn(place, CODE)
    return mutants.places("one.py").values()


def test_each_change_is_what_its_number_says(place: Path) -> None:
    """Also behind those that are left out: the change is on its line."""
    for changes in _places(place):
        for one in changes:
            before, after = mutants.changed(one, place.parent)
            pairs = zip(before.splitlines(), after.splitlines(), strict=False)
            differ = [at + 1 for at, (a, b) in enumerate(pairs) if a != b]
            assert differ[0] == one.line


def test_survivors_are_told_unless_the_page_has_them() -> None:
    rows = [
        {
            "path": "a.py",
            "line": 3,
            "operator": "o",
            "killed": killed,
            "tests": 1,
            "of": 2,
            "diff": [f"-    x = {number} | y", f"+    x = {number + 1} | y"],
        }
        for number, killed in enumerate((True, False, False))
    ]
    page = "| `a.py:9` | `x = 1 \\| y` to `x = 2 \\| y` | no matter |"
    said = mutants.show(rows, 5, page)
    assert "x = 2 | y" in said
    assert "x = 1 | y" not in said
    assert "1 of 3 mutants killed (33 %)" in said
    assert "1 others are in docs/mutants.md, 1 are not" in said
    assert "2 were not judged" in said
