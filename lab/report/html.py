"""`report.html`: one or several runs side by side, self-contained, readable offline.

Reads only the files of runs (`summary.json`, `jobs.csv`, `tasks.csv`, `stages.csv`), so a report
can be made of any run at any time: `python -m lab.report.html RUN_DIR... --out report.html`.
"""

import csv
import html
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lab.report.comparing import differs, ranked, read_runs
from lab.report.dag import draw_dag
from lab.report.gantt import lanes
from weft.client.text import natural
from weft.model.errors import InputError
from weft.results.ends import SUCCEEDED

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
FAIRNESS_WINDOW_S = 240.0
GANTT_TASKS_MAX = 60_000
GANTT_NODES_MAX = 60
GANTT_STAGES_MAX = 24
# So many nodes are named beside their bands; of more, some are.
GANTT_NAMES_MAX = 24
# A second picture is drawn so wide, in inches, for a phone: letters keep their size.
NARROW_IN = 4.2
# With more boxes they are drawn as one image.
BOXES_MAX = 4_000
STEPS_MAX = 4_000
STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1f2937;--line:#e5e7eb;--soft:#6b7280;
--cold:#f9fafb;--hot:#fef2f2}
@media(prefers-color-scheme:dark){:root{--page:#12171e;--text:#e5e9ee;--line:#2b3542;--soft:#9aa6b4;
--cold:#1d2530;--hot:#3a2022}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;
color:var(--text);background:var(--page)}
h1{font-size:1.6rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:2.2rem 0 .4rem}
p{max-width:60rem}
.wide,figure{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .8rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
figure svg{display:block;min-width:38rem;max-width:100%;height:auto;fill:currentColor}
figure.narrow{display:none}figure.narrow svg{min-width:0;width:100%}
@media(max-width:40rem){figure.narrow{display:block}figure.narrow+figure{display:none}}
"""
# Colours that matplotlib writes, and what follows the reader's theme instead; text has no colour of
# its own.
THEMED = {
    "#000000": "currentColor",
    "#ffffff": "var(--page)",
    "#b0b0b0": "var(--soft)",
    "#cccccc": "var(--line)",
    "#f9fafb": "var(--cold)",
    "#fef2f2": "var(--hot)",
    "#9ca3af": "var(--soft)",
}


@dataclass(slots=True)
class LoadedRun:
    """The files of one run, as arrays."""

    name: str
    summary: dict[str, Any]
    jobs: list[dict[str, str]]
    stages: list[dict[str, str]]
    task_job: np.ndarray[Any, Any]
    task_stage: list[str]
    task_node: np.ndarray[Any, Any]
    ready_s: np.ndarray[Any, Any]
    start_s: np.ndarray[Any, Any]
    end_s: np.ndarray[Any, Any]
    nodes: list[str]

    @property
    def jct_s(self) -> np.ndarray[Any, Any]:
        """Completion times of the jobs that succeeded, sorted, s."""
        return np.sort([float(job["jct_s"]) for job in self.jobs if job["state"] in SUCCEEDED])

    @property
    def ends(self) -> str:
        """Ends of its jobs, as `35 SUCCEEDED, 5 FAILED`."""
        states = [job["state"] for job in self.jobs]
        return ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))


def load_run(folder: Path) -> LoadedRun:
    """Read a run's folder; raises InputError naming what is missing."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        jobs, stages = _rows(folder / "jobs.csv"), _rows(folder / "stages.csv")
        index: dict[str, int] = {}
        job, stage, node = list[int](), list[str](), list[int]()
        ready, start, end = list[float](), list[float](), list[float]()
        with (folder / "tasks.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                if row["start_s"] and row["end_s"]:
                    job.append(int(row["job"]))
                    stage.append(row["stage"])
                    ready.append(float(row["ready_s"] or row["start_s"]))
                    node.append(index.setdefault(row["node"], len(index)))
                    start.append(float(row["start_s"]))
                    end.append(float(row["end_s"]))
    except OSError as error:
        raise InputError(str(error.filename), error.strerror or "cannot be read") from None
    except (ValueError, KeyError) as error:
        raise InputError(str(folder), f"is not a run: {error}") from None
    return LoadedRun(
        folder.name,
        summary,
        jobs,
        stages,
        np.array(job),
        stage,
        np.array(node),
        np.array(ready),
        np.array(start),
        np.array(end),
        list(index),
    )


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the report of some runs; into the first run's folder if not told else."""
    runs = [load_run(folder) for folder in folders]
    path = out or folders[0] / "report.html"
    names = ", ".join(run.name for run in runs)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<title>Weft: {html.escape(names)}</title><style>{STYLE}</style>",
        f"<h1>Weft runs: {html.escape(names)}</h1>",
        _table(runs, _unranked(folders)),
    ]
    several = any(len(run.jobs) > 1 for run in runs)
    if several:
        text = "Of the jobs that succeeded, the share that ended within a time."
        parts += _section("Job completion times", text, _jct(runs))
    parts += _section(
        "Tasks over time",
        "Solid: they run. Dashed: the queue, those that are ready and wait for room.",
        _running(runs),
    )
    parts += _section("Utilisation", "Mean over the makespan, by resource.", _utilisation(runs))
    # One job is never treated unfairly, and one window is no course of time.
    if several and any(float(run.summary["makespan_s"]) > FAIRNESS_WINDOW_S for run in runs):
        parts += _section(
            "Fairness over time",
            f"Jain's index of the jobs' running tasks in windows of {FAIRNESS_WINDOW_S:.0f} s; "
            "1: all active jobs ran as many tasks.",
            _fairness(runs),
        )
    for run in runs:
        if "leftover" in run.summary:
            told = run.summary["leftover"]
            percent = 100 * run.summary["altruistic"]
            parts += _section(
                f"Leftover over time: {run.name}",
                f"{percent:.0f} % of the tasks were placed as ALTRUISTIC: their jobs could wait, "
                f"and they took what others did not need at once. Held of {told['resource']}, the "
                f"busiest resource.",
                _leftover(run),
            )
        coloured = "job" if len(run.jobs) > 1 else "stage"
        parts += _section(
            f"Machines over time: {run.name}",
            "A band a node; tasks that ran there at once lie below each other. One box a task, "
            f"one colour a {coloured}.",
            _gantt(run),
            plain=False,
        )
    parts += _section(
        "The slowest job's DAG",
        "Stages with tasks and duration; the critical path is drawn in red.",
        draw_dag(*_slowest(runs[0])),
        plain=False,
    )
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _section(title: str, text: str, figure: Figure, *, plain: bool = True) -> list[str]:
    """Return a section's parts; a figure that is not `plain` is large, and scrolls on a phone."""
    words = f"<p>{html.escape(text)}</p>" if text else ""
    label = html.escape(title, quote=True)
    found = [f"<h2>{html.escape(title)}</h2>{words}"]
    svg = _drawn(figure)
    if plain:
        figure.set_size_inches(NARROW_IN, figure.get_figheight())
        narrow = _drawn(figure)
        found.append(f'<figure class=narrow role=group aria-label="{label}">{narrow}</figure>')
    return [*found, f'<figure role=group aria-label="{label}">{svg}</figure>']


def _drawn(figure: Figure) -> str:
    """Return a figure as SVG in the reader's theme."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None}
    )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, themed in THEMED.items():
        svg = svg.replace(f": {colour}", f": {themed}")
    return svg


def _unranked(folders: Sequence[Path]) -> list[str]:
    """Return by run why it cannot be ranked against the first, or nothing where all can."""
    first, *others = read_runs(folders)
    found = ["", *(differs(first, other) for other in others)]
    return found if any(found) else []


def _table(runs: Sequence[LoadedRun], notes: Sequence[str]) -> str:
    head = (
        "run",
        "scheduler",
        "jobs",
        "ended",
        "tasks",
        "makespan s",
        "JCT mean s",
        "p50",
        "p95",
        "Jain 240 s",
        "seed",
        "digest",
        *(["ranked"] if notes else []),
    )
    rows = []
    for run, note in zip(runs, notes or [""] * len(runs), strict=True):
        s = run.summary
        jct = s["jct_s"] if len(run.jct_s) else dict.fromkeys(s["jct_s"])
        cells = (
            run.name,
            s["scheduler"],
            s["jobs"],
            run.ends,
            s["tasks"],
            f"{s['makespan_s']:,.0f}",
            *("-" if jct[key] is None else f"{jct[key]:,.1f}" for key in ("mean", "p50", "p95")),
            "-" if s["jain"]["240"] is None else f"{s['jain']['240']:.3f}",
            s["seed"],
            s["digest"][:12],
            *([ranked(note)] if notes else []),
        )
        rows.append("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in cells) + "</tr>")
    heads = "".join(f"<th>{name}</th>" for name in head)
    return f"<div class=wide><table><tr>{heads}</tr>{''.join(rows)}</table></div>"


def _jct(runs: Sequence[LoadedRun]) -> Figure:
    figure = Figure(figsize=(10, 4))
    axes = figure.subplots()
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        times = run.jct_s
        if len(times):
            shares = np.arange(1, len(times) + 1) / len(times)
            label = f"{run.name} ({len(times):,} of {len(run.jobs):,} jobs)"
            axes.step(times, shares, where="post", color=colour, label=label)
    axes.set(xlabel="completion time, s", ylabel="share of jobs that succeeded", ylim=(0, 1))
    _time_axis(axes, np.concatenate([run.jct_s for run in runs]))
    return _finish(figure)


def _time_axis(axes: Axes, times: np.ndarray[Any, Any]) -> None:
    """Set the axis from 0 where times are of one size, else by powers of ten."""
    shortest = float(times.min(initial=np.inf))
    if len(times) and shortest > 0 and times.max() > 20 * shortest:
        axes.set_xscale("log")
        axes.set_xlim(left=shortest / 1.2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    else:
        axes.set_xlim(left=0)


def _running(runs: Sequence[LoadedRun]) -> Figure:
    figure = Figure(figsize=(10, 3.2))
    axes = figure.subplots()
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        axes.step(
            *_count(run.start_s, run.end_s), where="post", color=colour, label=run.name, lw=1.2
        )
        axes.step(
            *_count(run.ready_s, run.start_s), where="post", color=colour, lw=1, ls=(0, (3, 2))
        )
    axes.set(xlabel="time, s", ylabel="tasks", xlim=(0, None), ylim=(0, None))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return _finish(figure)


def _count(
    from_s: np.ndarray[Any, Any], until_s: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (times, how many are between their own two from then on), thinned out evenly."""
    times, at = np.unique(np.concatenate([[0.0], from_s, until_s]), return_inverse=True)
    steps = np.zeros(len(times))
    np.add.at(steps, at[1 : 1 + len(from_s)], 1)
    np.add.at(steps, at[1 + len(from_s) :], -1)
    every = 1 + len(times) // STEPS_MAX
    chosen = np.unique([*range(0, len(times), every), len(times) - 1])
    return times[chosen], np.cumsum(steps)[chosen]


def _leftover(run: LoadedRun) -> Figure:
    """Return Carbyne's two types of ask: what must run, and what runs in leftover resources."""
    figure = Figure(figsize=(10, 3.2))
    axes = figure.subplots()
    told = run.summary["leftover"]
    axes.stackplot(
        told["time_s"],
        told["default"],
        told["altruistic"],
        colors=(COLOURS[0], COLOURS[3]),
        labels=("DEFAULT: must run", "ALTRUISTIC: runs in leftover"),
        step="post",
    )
    axes.set(xlabel="time, s", ylabel=f"share of {told['resource']}", ylim=(0, 1))
    _finish(figure)
    axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def _utilisation(runs: Sequence[LoadedRun]) -> Figure:
    figure = Figure(figsize=(10, 3))
    axes = figure.subplots()
    names = list(runs[0].summary["utilisation"])
    width = 0.8 / len(runs)
    for i, (run, colour) in enumerate(zip(runs, _colours(len(runs)), strict=True)):
        values = [run.summary["utilisation"].get(name, 0.0) for name in names]
        axes.bar(np.arange(len(names)) + i * width, values, width, color=colour, label=run.name)
    units_below = [name.replace("_", "\n") for name in names]
    axes.set_xticks(np.arange(len(names)) + 0.4 - width / 2, units_below)
    axes.set(ylabel="share of capacity", ylim=(0, 1))
    return _finish(figure)


def _fairness(runs: Sequence[LoadedRun]) -> Figure:
    figure = Figure(figsize=(10, 3.2))
    axes = figure.subplots()
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        times, index = jain_over_time(run, FAIRNESS_WINDOW_S)
        # A line needs at least three points.
        few = "o" if len(times) < 3 else ""
        axes.plot(times, index, color=colour, label=run.name, lw=1.2, marker=few)
    axes.set(xlabel="time, s", ylabel="Jain's index", xlim=(0, None), ylim=(0, 1.02))
    return _finish(figure)


def jain_over_time(
    run: LoadedRun, window_s: float
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (window starts, index) of task-seconds of the jobs active in each window."""
    makespan = float(run.summary["makespan_s"])
    starts = np.arange(0.0, max(makespan, window_s), window_s)
    jobs = {int(job["job"]): number for number, job in enumerate(run.jobs)}
    arrival = np.array([float(job["arrival_s"] or 0) for job in run.jobs])
    finish = np.array([float(job["finish_s"] or makespan) for job in run.jobs])
    of = np.array([jobs[j] for j in run.task_job.tolist()], dtype=np.int64)
    index = []
    for low in starts:
        high = low + window_s
        time = np.minimum(run.end_s, high) - np.maximum(run.start_s, low)
        got = np.bincount(of, np.maximum(time, 0.0), len(jobs))
        active = np.minimum(finish, high) - np.maximum(arrival, low)
        rate = got[active > 0] / active[active > 0]
        squares = float((rate**2).sum())
        index.append(rate.sum() ** 2 / (len(rate) * squares) if squares > 0 else np.nan)
    return starts, np.array(index)


def _gantt(run: LoadedRun) -> Figure:
    """Return a band a node, by name, and one box a task, below those that ran at once."""
    order = sorted(range(len(run.nodes)), key=lambda at: natural(run.nodes[at]))
    band = np.argsort(order)
    shown = (band[run.task_node] < GANTT_NODES_MAX).nonzero()[0][:GANTT_TASKS_MAX]
    node, start_s, end_s = band[run.task_node[shown]], run.start_s[shown], run.end_s[shown]
    lane, width = lanes(node, start_s, end_s)
    tall = 0.9 / np.maximum(width, 1)
    low = node - 0.45 + lane * tall
    high = low + 0.92 * tall
    corners = [
        np.stack(side, axis=1)
        for side in ((start_s, low), (end_s, low), (end_s, high), (start_s, high))
    ]
    rows = int(node.max(initial=0)) + 1
    figure = Figure(figsize=(10, float(np.clip(1.4 + 0.3 * rows * width.max(initial=1), 2.4, 6))))
    axes = figure.subplots()
    palette = mpl.colormaps["tab20"]
    named: list[Patch] = []
    if len(run.jobs) > 1:
        colour = palette(run.task_job[shown] % 20)
    else:
        names = [stage["stage"] for stage in run.stages]
        place = {name: number for number, name in enumerate(names)}
        colour = palette(np.array([place.get(run.task_stage[i], 0) for i in shown], int) % 20)
        named = [Patch(fc=palette(place[n] % 20), label=n) for n in names[:GANTT_STAGES_MAX]]
        if (left_out := len(names) - GANTT_STAGES_MAX) > 0:
            named.append(Patch(alpha=0, label=f"and {left_out} stages more"))
    boxes = PolyCollection(
        list(np.stack(corners, axis=1)),
        facecolors=colour,
        edgecolors="white",
        linewidths=0.6 if len(shown) <= BOXES_MAX else 0.0,
        rasterized=len(shown) > BOXES_MAX,
    )
    axes.add_collection(boxes)
    part = f" (first {rows})" if rows < len(run.nodes) else ""
    axes.set(xlabel="time, s", ylabel=f"node{part}")
    axes.set(xlim=(0, 1.02 * end_s.max(initial=1e-9)), ylim=(rows - 0.5, -0.5))
    named_rows = range(0, rows, -(-rows // GANTT_NAMES_MAX))
    axes.set_yticks(named_rows, [run.nodes[order[row]] for row in named_rows], fontsize=8)
    axes.tick_params("y", length=0)
    for row in range(1, rows):
        axes.axhline(row - 0.5, color="#cccccc", lw=0.5, zorder=0)
    if named:
        axes.legend(
            handles=named,
            frameon=False,
            fontsize=8,
            loc="upper left",
            bbox_to_anchor=(1.005, 1.0),
        )
    return figure


def _slowest(run: LoadedRun) -> tuple[str, list[dict[str, str]]]:
    done = [job for job in run.jobs if job["state"] in SUCCEEDED] or run.jobs
    slowest = max(done, key=lambda job: float(job["jct_s"] or 0))
    mine = [stage for stage in run.stages if stage["job"] == slowest["job"]]
    return f"{slowest['name']}: {float(slowest['jct_s'] or 0):,.1f} s", mine


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _finish(figure: Figure) -> Figure:
    axes = figure.axes[0]
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="best")
    return figure


def main(arguments: list[str]) -> None:
    """Run `python -m lab.report.html RUN_DIR... [--out FILE]`."""
    out = None
    if "--out" in arguments:
        at = arguments.index("--out")
        out = Path(arguments[at + 1])
        del arguments[at : at + 2]
    try:
        print(write_report([Path(a) for a in arguments], out))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main(sys.argv[1:])
