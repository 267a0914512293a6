"""Pictures of an analysis: small tables drawn as the thesis drew them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.analysis.figures import Figure

LABELS: Mapping[str, str] = {
    "delay_s": "queueing delay, s",
    "completion_s": "completion time, s",
    "at_s": "time, s",
    "job_instances": "instances of the job",
    "left_machines": "memory left, machines' worth",
    "size": "time from the first start to the last end",
    "machines": "machines",
    "tasks": "tasks",
}
SHARES: Mapping[str, str] = {"2.1": "share of jobs", "2.2": "share of instances"}
CELLS_LOG = ("delay_s", "completion_s", "job_instances")


def draw(figure: Figure, rows: Any, path: Path) -> None:
    """Draw a figure's table (a pandas frame) as SVG, the same bytes for the same rows."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Drawing

    style: Any = {"svg.hashsalt": figure.number, "svg.fonttype": "none", "font.size": 9}
    with rc_context(style):
        drawing = Drawing(figsize=(5.6, 3.6), layout="constrained")
        axes = drawing.subplots()
        _KINDS[figure.kind](figure, rows, axes)
        axes.set_title(f"{figure.number}: {figure.title}", loc="left", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        drawing.savefig(path, metadata={"Date": None})


def _bars(figure: Figure, rows: Any, axes: Any) -> None:
    axes.bar([_name(x) for x in rows[figure.x]], rows[figure.y])
    axes.set(xlabel=_label(figure, figure.x), ylabel=_label(figure, figure.y))


def _label(figure: Figure, column: str) -> str:
    """Return what a column says, with its unit."""
    if column == "instances":
        return "instances on a machine" + (" (from)" if figure.number == "2.12" else "")
    return SHARES[figure.number] if column == "share" else LABELS[column]


def _name(value: object) -> str:
    """Return a category: a number without its fraction, a size without its ordering number."""
    return f"{value:.0f}" if isinstance(value, int | float) else str(value).partition(": ")[2]


def _steps(figure: Figure, rows: Any, axes: Any) -> None:
    axes.step(np.maximum(rows[figure.x], 0.5), rows[figure.y], where="post")
    axes.set(xlabel=f"{_label(figure, figure.x)} (0 at the left)", xscale="log", ylim=(0, 1))
    axes.set_ylabel(_label(figure, figure.y))


def _cells(figure: Figure, rows: Any, axes: Any) -> None:
    """Draw squares as large as their instances are many; darker: they ran for less time."""
    many = rows["instances"].to_numpy(dtype=float)
    size = 40.0 * np.sqrt(many / many.max()) if len(many) else many
    colour = rows.get("mean_run_s")
    x, y = rows[figure.x].to_numpy(dtype=float), rows[figure.y].to_numpy(dtype=float)
    if figure.x in CELLS_LOG:
        x = np.maximum(x, 0.5)
        axes.set_xscale("log")
    drawn = axes.scatter(x, np.maximum(y, 0.5), s=size, c=colour, marker="s", linewidths=0)
    if colour is not None:
        axes.figure.colorbar(drawn, ax=axes, label="mean run time, s")
    axes.set(xlabel=_label(figure, figure.x), yscale="log")
    axes.set_ylabel(f"{_label(figure, figure.y)} (0 at the bottom)")


def _matrix(figure: Figure, rows: Any, axes: Any) -> None:
    names = list(dict.fromkeys(rows["a"]))
    grid = np.full((len(names), len(names)), np.nan)
    for a, b, r in zip(rows["a"], rows["b"], rows["r"], strict=True):
        grid[names.index(a), names.index(b)] = grid[names.index(b), names.index(a)] = r
    shown = [name.replace("_", " ") for name in names]
    axes.imshow(grid, vmin=-1, vmax=1, cmap="RdBu_r")
    for i in range(len(names)):
        for j in range(len(names)):
            text = f"{grid[i, j]:.2f}".replace("-0.00", "0.00").replace("nan", "")
            dark = "white" if abs(grid[i, j]) > 0.6 else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=6, color=dark)
    axes.set_xticks(range(len(names)), shown, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(len(names)), shown, fontsize=7)


def _lines(figure: Figure, rows: Any, axes: Any) -> None:
    for name in figure.y.split(","):
        axes.plot(rows[figure.x], rows[name], label=name, linewidth=0.8)
    axes.set(xlabel=_label(figure, figure.x), ylabel="share of the cluster", ylim=(0, None))
    axes.legend(frameon=False)


def _groups(figure: Figure, rows: Any, axes: Any) -> None:
    for name, part in rows.groupby("of"):
        axes.step(part[figure.x], part[figure.y], where="mid", label=name)
    axes.axvline(0.0, color="grey", linewidth=0.8)
    axes.set(xlabel="asked for over used, powers of two", ylabel=_label(figure, figure.y))
    axes.legend(frameon=False)


_KINDS = {
    "bars": _bars,
    "steps": _steps,
    "cells": _cells,
    "matrix": _matrix,
    "lines": _lines,
    "groups": _groups,
}
