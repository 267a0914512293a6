"""Verdicts on a paper's numbers: pure functions of an interval, a claim and a margin."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lab.papers.verdict import (
    CANNOT_TELL,
    COUNT,
    DIFFERS,
    EQUIVALENT,
    FACTOR,
    INDEX,
    MEASURES,
    SAVED,
    SHARE,
    Claim,
    Measure,
    claim_of,
    judged,
    seeds_that_tell,
    verdict,
)
from lab.studies.trials import student_t

numbers = st.floats(-100, 100)
halves = st.floats(0, 50)
measures = st.sampled_from(MEASURES)
claims = st.tuples(numbers, st.floats(0, 20)).map(lambda c: Claim(c[0], c[0] + c[1]))


@given(numbers, halves, claims, measures)
def test_a_wider_interval_never_earns_a_verdict(
    mean: float, half: float, claim: Claim, measure: Measure
) -> None:
    said = judged((mean, half), claim, measure)
    wider = judged((mean, half + 1.0), claim, measure)
    assert wider in (said, CANNOT_TELL)
    assert judged((mean, math.inf), claim, measure) == CANNOT_TELL
    assert judged((mean, math.nan), claim, measure) == CANNOT_TELL


@given(numbers, halves, claims, measures)
def test_verdicts_are_what_the_ends_of_the_interval_say(
    mean: float, half: float, claim: Claim, measure: Measure
) -> None:
    low, high = claim.zone(measure)
    ends = [low <= end <= high for end in (mean - half, mean + half)]
    said = judged((mean, half), claim, measure)
    assert (said == EQUIVALENT) == all(ends)
    if said == DIFFERS:
        assert not any(ends)
        assert not mean - half <= claim.low <= mean + half


@given(numbers, halves, claims, measures)
def test_a_mirrored_world_has_the_same_verdict(
    mean: float, half: float, claim: Claim, measure: Measure
) -> None:
    mirrored = Claim(-claim.high, -claim.low)
    assert judged((mean, half), claim, measure) == judged((-mean, half), mirrored, measure)


@given(numbers, st.floats(0.01, 50), st.integers(2, 40), claims, measures)
def test_so_many_seeds_tell_and_one_less_does_not(
    mean: float, half: float, seeds: int, claim: Claim, measure: Measure
) -> None:
    assume(judged((mean, half), claim, measure) == CANNOT_TELL)
    count = seeds_that_tell((mean, half), seeds, claim, measure)
    deviation = half * math.sqrt(seeds) / student_t(seeds - 1)

    def after(many: int) -> str:
        spread = student_t(many - 1) * deviation / math.sqrt(many)
        return judged((mean, spread), claim, measure)

    if count is None:
        assert after(1_000) == CANNOT_TELL
        return
    assert count >= seeds
    assert after(count) != CANNOT_TELL
    if count > 2:
        assert after(count - 1) == CANNOT_TELL


@given(st.integers(1, 2_000))
def test_students_t_falls_to_the_normal_one(freedom: int) -> None:
    assert student_t(freedom) >= student_t(freedom + 1) - 1e-3
    assert student_t(freedom) > 1.959


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("+30.9", Claim(30.9, 30.9)),
        ("-13", Claim(-13, -13)),
        ("about 60", Claim(60, 60)),
        ("> 0.70", Claim(0.7, math.inf)),
        ("above 1", Claim(1, math.inf)),
        ("at least 50", Claim(50, math.inf)),
        ("at most 7", Claim(-math.inf, 7)),
        ("up to 1,000,000", Claim(-math.inf, 1_000_000)),
        ("1.76 to 1.91", Claim(1.76, 1.91)),
        ("75 to 83 (4 to 6 times)", Claim(75, 83)),
        ("1.50 (1.59 / 1.06)", Claim(1.5, 1.5)),
        ("", None),
        ("small", None),
        ("a constant", None),
        ("more than at 2 x", None),
    ],
)
def test_a_papers_words_are_numbers_bounds_or_nothing(text: str, claim: Claim | None) -> None:
    assert claim_of(text) == claim


@pytest.mark.parametrize(
    ("paper", "mean", "half", "measure", "said"),
    [
        # Within 5 points, and the interval is what has to lie there.
        ("+30.9", 31.8, 3.4, SAVED, "equivalent"),
        ("+30.9", 31.8, 5.4, SAVED, "cannot tell"),
        ("+30.9", 42.9, 1.6, SAVED, "differs"),
        # An interval that holds both the paper's number and no effect says nothing.
        ("-13", -2.2, 10.9, SAVED, "cannot tell"),
        ("+6.5", 2.4, 9.6, SAVED, "cannot tell"),
        ("1.50", 1.52, 0.03, FACTOR, "equivalent"),
        ("1.50", 1.22, 0.03, FACTOR, "differs"),
        ("0.86", 0.85, 0.05, INDEX, "cannot tell"),
        ("at most 7", 7.2, 2.2, SAVED, "cannot tell"),
        ("at most 7", -0.5, 0.8, SAVED, "equivalent"),
        ("> 0.70", 0.47, 0.01, INDEX, "differs"),
        ("about 60", 60.4, 0.0, SHARE, "equivalent"),
        ("5", 5.0, 0.0, COUNT, "equivalent"),
    ],
)
def test_margins_are_those_that_the_docs_have(
    paper: str, mean: float, half: float, measure: Measure, said: str
) -> None:
    assert verdict((mean, half), 10, paper, measure).partition(" (")[0] == said


def test_how_many_seeds_would_tell_is_said() -> None:
    assert verdict((31.8, 5.4), 10, "+30.9", SAVED) == "cannot tell (16 seeds would)"
    assert verdict((35.9, 1.0), 10, "+30.9", SAVED) == "cannot tell (nor would 1,000 seeds)"
    assert verdict((31.8, math.nan), 1, "+30.9", SAVED) == "cannot tell (2 seeds at least)"
    assert verdict((31.8, 1.0), 10, "small", SAVED) == ""
