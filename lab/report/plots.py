"""Pictures of runs side by side: `compare --plot` and `study --plot`, one file each.

The suffix says which kind (.svg, .png, .pdf). Runs over several seeds are drawn with an interval.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.report.comparing import Compared, differs, unranked, varied
from weft.model.errors import InputError, WeftError
from weft.policies.presets import short_labels
from weft.results.ends import succeeded

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
CONFIDENCE_LEVEL = 0.95
# So many bars stand side by side.
STANDING_MAX = 6


def plot_compare(runs: Sequence[Compared], path: Path) -> None:
    """Draw completion times as distributions, and the gain over the first for equal work."""
    figure, axes = _figure(2)
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        times = np.sort(np.array(list(run.jct_s.values())))
        label = f"{run.name} ({len(run.jct_s):,} of {run.jobs:,} jobs)"
        if len(times):
            axes[0].step(times, _shares(len(times)), where="post", color=colour, label=label)
    axes[0].set(xlabel="completion time, s", ylabel="share of jobs that succeeded", ylim=(0, 1))
    _log(axes[0], [value for run in runs for value in run.jct_s.values()])
    first = runs[0]
    for run, colour in list(zip(runs, _colours(len(runs)), strict=True))[1:]:
        if differs(first, run):
            continue
        gains = np.sort(
            [
                100 * (first.jct_s[job] - own) / first.jct_s[job]
                for job, own in run.jct_s.items()
                if first.jct_s[job]
            ]
        )
        axes[1].step(gains, _shares(len(gains)), where="post", color=colour, label=run.name)
    axes[1].axvline(0, color="#9ca3af", lw=1)
    axes[1].set(xlabel=f"faster than {first.name} by, %", ylabel="share of jobs", ylim=(0, 1))
    _save(figure, axes, path)


def plot_study(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw mean completion time and makespan by scheduler, with an interval over the seeds.

    Without a bar are those of which some row is not ranked.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    less: set[str] = set()
    for row, why in zip(rows, unranked(rows), strict=True):
        label = _label(row, rows)
        groups.setdefault(label, []).append(row)
        if why:
            less.add(label)
    names = [_not_ranked(g, groups[g]) if g in less else g for g in groups]
    # Beyond some bars, and some words, their names are only read beside them.
    lying = len(groups) > STANDING_MAX or bool(less)
    figure, axes = _figure(2, max(4.2, 0.3 * len(groups) + 1) if lying else 4.2)
    places = np.arange(len(groups))
    for axis, name in ((axes[0], "mean completion time, s"), (axes[1], "makespan, s")):
        values = [
            np.array([np.nan if group in less else _of(row, name) for row in own])
            for group, own in groups.items()
        ]
        means = np.array([value.mean() for value in values])
        spans = np.array([interval(value) for value in values])
        colours = _colours(len(groups))
        if lying:
            axis.barh(places, means, 0.6, xerr=spans, capsize=3, color=colours)
            axis.set_yticks(places, names if axis is axes[0] else [])
            axis.invert_yaxis()
            axis.set(xlabel=name, xlim=(0, None))
            continue
        axis.bar(places, means, 0.6, yerr=spans, capsize=4, color=colours)
        axis.set_xticks(places, names, rotation=30, ha="right")
        axis.set(ylabel=name, ylim=(0, None))
    seeds = max(len(group) for group in groups.values())
    if seeds > 1:
        axes[0].set_title(
            f"{CONFIDENCE_LEVEL:.0%} intervals over up to {seeds} runs each", loc="left"
        )
    _save(figure, axes, path)


def _not_ranked(label: str, group: Sequence[Mapping[str, Any]]) -> str:
    good, jobs = sum(map(succeeded, group)), sum(row["jobs"] for row in group)
    return f"{label}\nnot ranked: {good:,} of {jobs:,} jobs succeeded"


def _of(row: Mapping[str, Any], name: str) -> float:
    return float(row["makespan_s"] if name.startswith("makespan") else row["jct_s"]["mean"])


def interval(values: np.ndarray[Any, Any]) -> float:
    """Return half the width of the mean's interval (Student's t, level 0.95); 0 for one value."""
    if len(values) < 2:
        return 0.0
    spread = float(values.std(ddof=1)) / float(np.sqrt(len(values)))
    return _student(len(values) - 1) * spread


# This is Student's t at 0.975, by degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def _student(degrees: int) -> float:
    """Return the 0.975 quantile; beyond ten degrees 1.96 + 2.5 / degrees, within 0.02 of it."""
    return _T[degrees - 1] if degrees <= len(_T) else 1.96 + 2.5 / degrees


def _label(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the scheduler, and whatever else of the grid is varied."""
    parts = [short_labels(str(other["scheduler"]) for other in rows)[str(row["scheduler"])]]
    for key in ("workload", "cluster", "load", "arrivals", "estimate_error", "options"):
        if len({str(other[key]) for other in rows}) > 1:
            own = row[key]
            if key == "options":
                # Its keys say what it is.
                parts += [varied(own)] if own else []
                continue
            parts.append(Path(str(own)).name if key == "workload" else f"{key} {varied(own)}")
    return ", ".join(parts)


def _shares(count: int) -> np.ndarray[Any, Any]:
    return np.arange(1, count + 1) / count


def _log(axes: Any, values: Sequence[float]) -> None:
    """Set a logarithmic axis where times span more than a factor of twenty, and none is zero."""
    if values and min(values) > 0 and max(values) > 20 * min(values):
        axes.set_xscale("log")


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _figure(count: int, height: float = 4.2) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * count, height), layout="constrained")
    return figure, figure.subplots(1, count)


def _save(figure: Any, axes: Any, path: Path) -> None:
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, loc="best")
    try:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    except ValueError as error:
        # The suffix stands for no kind of picture.
        raise InputError(str(path), str(error)) from None
    except OSError as error:
        raise WeftError(f"{path}: cannot be written: {error.strerror or error}") from None
