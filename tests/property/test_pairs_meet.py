"""Where two features meet: every pair in a small cluster, judged by facts alone."""

from itertools import combinations, product

import pytest

from testkit.meetings.covering import covering
from testkit.meetings.features import DIMENSIONS, FAULTS, row_of, rows, text_of
from testkit.meetings.search import search

pytestmark = pytest.mark.slow

PARTS = 8


def _problems(number: int, *, faults: bool) -> list[str]:
    chosen = rows(2, faults=faults)
    size = -(-len(chosen) // PARTS)
    first = number * size
    found = search(chosen[first : first + size], first)
    return [f"{one.problem}: {one.command}" for one in found]


@pytest.mark.parametrize("part", range(PARTS))
def test_where_two_features_meet_every_promise_holds(part: int) -> None:
    """`make meetings` has every three of them."""
    assert not _problems(part, faults=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_where_a_fault_meets_a_feature_nothing_is_left_over(part: int) -> None:
    assert not _problems(part, faults=True)


@pytest.mark.parametrize("strength", [2, 3])
def test_all_values_meet_in_few_rows(strength: int) -> None:
    sizes = [4, 3, 3, 2, 2]
    found = covering(sizes, strength)
    for group in combinations(range(len(sizes)), strength):
        wanted = set(product(*(range(sizes[d]) for d in group)))
        assert {tuple(row[d] for d in group) for row in found} == wanted
    assert len(found) <= {2: 16, 3: 50}[strength]


def test_a_row_is_read_as_it_is_told() -> None:
    for row in rows(2, faults=True):
        assert row_of(text_of(row).split()) == row
    with pytest.raises(ValueError, match="there is no"):
        row_of(["matcher=none"])
    assert len(FAULTS) + len(DIMENSIONS) > 20
