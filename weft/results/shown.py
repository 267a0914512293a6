"""A run as a notebook shows it: its figures in a line, or a table and a curve as HTML."""

import html
from collections.abc import Mapping
from typing import Any

from weft.results.ends import succeeded

WIDTH, HEIGHT = 560, 120


def figures_of(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what is shown of a summary, by name; empty for a run that has none."""
    if not summary:
        return {}
    good = succeeded(summary)
    times = summary["jct_s"] if good else dict.fromkeys(summary["jct_s"])
    states = ", ".join(f"{count} {state}" for state, count in summary["states"].items())
    return {
        "scheduler": str(summary["scheduler"]),
        "jobs": f"{summary['jobs']:,} ({states})",
        "tasks": f"{summary['tasks']:,}",
        "makespan": f"{summary['makespan_s']:,.1f} s",
        "mean completion time": _seconds(times["mean"]) + _of(good, summary["jobs"]),
        "median, 95th percentile": f"{_seconds(times['p50'])}, {_seconds(times['p95'])}",
        "digest": str(summary["digest"])[:12],
    }


def as_text(summary: Mapping[str, Any], rows: Mapping[str, int]) -> str:
    """Return a run in one line."""
    shown = figures_of(summary)
    tables = ", ".join(f"{count:,} {name}" for name, count in rows.items())
    if not shown:
        return f"<Results: {tables}>"
    return (
        f"<Results of {shown['scheduler']}: {tables}; makespan {shown['makespan']}, "
        f"mean completion time {shown['mean completion time']}>"
    )


def as_html(summary: Mapping[str, Any], rows: Mapping[str, int]) -> str:
    """Return a run as a table of its figures and the curve of its running tasks."""
    shown = figures_of(summary) or {name: f"{count:,}" for name, count in rows.items()}
    lines = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in shown.items()
    )
    return f"<table>{lines}</table>{_curve(summary.get('running', {}))}"


def _of(good: int, jobs: int) -> str:
    """Return of how many jobs a figure is, where it is not of all."""
    return "" if good == jobs else f" (of the {good:,} of {jobs:,} jobs that succeeded)"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _curve(running: Mapping[str, Any]) -> str:
    """Draw the number of running tasks over time; nothing where the summary does not hold it."""
    times = running.get("time_s", ())
    counts = next((v for name, v in running.items() if name != "time_s"), ())
    if len(times) < 2 or not max(counts, default=0):
        return ""
    span_s, most = times[-1] - times[0], max(counts)
    points = " ".join(
        f"{(at - times[0]) / span_s * WIDTH:.1f},{HEIGHT - count / most * HEIGHT:.1f}"
        for at, count in zip(times, counts, strict=True)
    )
    return (
        f"<figure><svg viewBox='0 -4 {WIDTH} {HEIGHT + 8}' width='{WIDTH}' role='img' "
        f"aria-label='running tasks over time, at most {most:g}'>"
        f"<polyline points='{points}' fill='none' stroke='#2563eb' stroke-width='2'/></svg>"
        f"<figcaption>running tasks, at most {most:g}, over {span_s:,.0f} s</figcaption></figure>"
    )
