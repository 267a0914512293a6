"""A fall of a figure is found, whatever machine it was measured on."""

import json

from lab.bench import check as bench_check
from lab.bench.check import fallen, history, interpreter, main


def line(by: str, **ratios: float) -> dict[str, object]:
    """A line of the history."""
    cases = {name: {"task_us": 1.0, "loop_us": 1.0, "ratio": r} for name, r in ratios.items()}
    return {"commit": "x", "date": "d", "interpreter": by, "machine": "m", "cases": cases}


def row(ratio: float) -> dict[str, float]:
    """A figure of now."""
    return {"task_us": ratio, "loop_us": 1.0, "ratio": ratio}


def test_a_case_that_takes_15_percent_more_has_fallen() -> None:
    kept = [line("a", x=50.0), line("a", x=100.0, y=10.0), line("b", x=1.0)]
    assert fallen({"x": row(114.9), "y": row(10.0), "z": row(9e9)}, kept, "a") == {}
    assert fallen({"x": row(116.0), "y": row(9.0)}, kept, "a") == {"x": 1.16}
    assert fallen({"x": row(116.0)}, kept, "c") == {}, "ratios of two interpreters do not compare"


def test_the_check_fails_where_a_case_fell_twice_and_writes_a_line_when_told(
    tmp_path, monkeypatch, capsys
) -> None:
    told = iter([200.0, 190.0, 200.0, 101.0, 300.0])
    monkeypatch.setattr(bench_check, "HISTORY", tmp_path / "bench.jsonl")
    monkeypatch.setattr(bench_check, "history", lambda: history(tmp_path / "bench.jsonl"))
    monkeypatch.setattr(bench_check, "figures", lambda names: {"capacity, python": row(next(told))})
    (tmp_path / "bench.jsonl").write_text(
        json.dumps(line(interpreter(), **{"capacity, python": 100.0})) + "\n"
    )
    assert main([]) == 1, "200, then 190"
    assert "1.90 times" in capsys.readouterr().out
    assert main([]) == 0, "200, then 101: a loud neighbour"
    assert main(["--write"]) == 0
    kept = history(tmp_path / "bench.jsonl")
    assert [one["cases"]["capacity, python"]["ratio"] for one in kept] == [100.0, 300.0]


def test_what_is_kept_can_be_read() -> None:
    for one in history():
        assert set(one) == {"commit", "date", "interpreter", "machine", "cases"}
        assert all(case["ratio"] > 0 for case in one["cases"].values())
