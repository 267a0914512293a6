"""Studies over seeds: intervals, pairs, rows that are kept."""

import math
from pathlib import Path

import pytest

from lab.studies.trials import cell, interval, paired, print_table, run_trials


def test_an_interval_is_student_s() -> None:
    """1, 2, 3: mean 2, s = 1, t(2) = 4.303."""
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 4.303 / 3**0.5))
    mean, half = interval([5.0])
    assert mean == 5.0
    assert math.isnan(half)
    assert interval([1.0] * 100) == (1.0, 0.0)


def test_pairs_take_the_seed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seeds differ by 100, cases by 1 %: the difference is exact, the numbers are not."""
    cases = {
        "a": lambda seed: {"x": 100.0 * (seed + 1)},
        "b": lambda seed: {"x": 101.0 * (seed + 1)},
    }
    rows = run_trials(cases, range(4), tmp_path / "rows.jsonl", "s")
    assert paired(rows, "b", "a", "x", percent=True) == pytest.approx((1.0, 0.0), abs=1e-9)
    assert paired(rows, "b", "a", "x", percent=False)[0] == pytest.approx(2.5)
    print_table("T", rows, {"x": 0}, "a", {"x": True})
    said = capsys.readouterr().out
    assert "| a | 250 ± 205 |  |" in said
    assert "| b | 252 ± 207 | +1.0 ± 0.0 |" in said


def test_a_study_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """What is kept is not run again; seeds are outermost, so what is there is balanced."""
    ran: list[tuple[str, int]] = []

    def case(name: str):
        def trial(seed: int) -> dict[str, float]:
            if len(ran) == 3 and name == "b":
                raise KeyboardInterrupt
            ran.append((name, seed))
            return {"x": float(seed)}

        return trial

    path, cases = tmp_path / "rows.jsonl", {"a": case("a"), "b": case("b")}
    with pytest.raises(KeyboardInterrupt):
        run_trials(cases, range(2), path, "s")
    assert ran == [("a", 0), ("b", 0), ("a", 1)]
    ran.clear()
    cases = {"a": case("a"), "b": case("b")}
    rows = run_trials(cases, range(2), path, "s")
    assert ran == [("b", 1)]
    assert [[row["x"] for row in found] for found in rows.values()] == [[0.0, 1.0]] * 2


def test_a_seed_that_says_nothing_is_left_out() -> None:
    assert interval([1.0, math.nan, 3.0]) == interval([1.0, 3.0])
    assert math.isnan(interval([math.nan])[0])


def test_a_cell_says_how_many_seeds_it_is_of_where_not_of_all() -> None:
    assert cell([1.0, 2.0, 3.0], 1) == "2.0 ± 2.5"
    assert cell([1.0, math.nan, 2.0, 3.0], 1) == "2.0 ± 2.5 (3 of 4 seeds)"
    assert cell([math.nan, 2.0], 1) == "2.0 (1 of 2 seeds)"
    assert cell([math.nan], 1) == "-"
