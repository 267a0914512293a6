"""A run in a notebook is a line, or a table and a curve; what `weft` offers is found by TAB."""

import weft

JOB = {
    "name": "<b>bold</b>",
    "stages": [{"name": "a", "tasks": 8, "duration_s": 5, "demand": {"vcores": 1}}],
}


def test_a_run_is_short_and_its_html_is_whole_and_harmless() -> None:
    run = weft.simulate(JOB, "2x4vcores,8192memory_mb", "fifo")
    assert len(repr(run)) < 200
    assert f"makespan {run.summary['makespan_s']:,.1f} s" in repr(run)
    page = run._repr_html_()
    assert "<polyline" in page
    assert "1 SUCCEEDED" in page
    assert "<b>" not in page


def test_what_a_notebook_offers_is_what_there_is() -> None:
    assert {name for name in dir(weft) if not name.startswith("_")} == {
        "plan",
        "results",
        "simulate",
    }
