"""A plan as a picture: machines over time, stages coloured, T outlined, bounds as lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from am.plan.bounds.bounds import Bounds
from am.plan.bounds.cuts import cut
from weft.model.dag import Dag, Floats, Ints
from weft.model.errors import InputError, WeftError
from weft.model.plan import Plan

# More bars are drawn as one image inside the picture.
_BARS_AS_SHAPES_MAX = 4000
_LEGEND_MAX = 24
_LINES = {
    "t_work_s": ("TWork", "#888888", ":"),
    "cp_len_s": ("CPLen", "#888888", "--"),
    "new_lb_s": ("NewLB", "#1f5fbf", "-."),
    "strong_lb_s": ("strong bound", "#b3261e", "-"),
}


def draw_plan(title: str, dag: Dag, plan: Plan, bounds: Bounds, path: Path) -> None:
    """Write the picture; the suffix says which kind (.svg, .png, .pdf). Raises WeftError."""
    import matplotlib

    # Equal plans give equal bytes.
    matplotlib.rcParams["svg.hashsalt"] = "weft"
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = max(int(plan.machine.max(initial=0)) + 1, 1)
    height = float(np.clip(1.8 + 0.42 * rows, 3.2, 14.0))
    figure = Figure(figsize=(11, height), layout="constrained")
    axes = figure.subplots()
    _bars(axes, dag, plan)
    _bounds(axes, bounds)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(0, max(plan.makespan_s, bounds.strong_lb_s, 1e-9) * 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("time, s")
    axes.set_ylabel("machine")
    axes.set_title(f"{title}: {plan.planner}, makespan {plan.makespan_s:,.4g} s", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    _legend(axes, dag, bool(troublesome(dag, plan.explain).size))
    try:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError):
            # The suffix stands for no kind of picture.
            raise InputError(str(path), str(error)) from None
        raise WeftError(f"{path}: {error.strerror or error}") from None


def troublesome(dag: Dag, explain: Mapping[str, Any]) -> Ints:
    """Return the tasks of T: each part names its own as ranges; empty where there is no T."""
    parts = explain.get("parts", [])
    if not any("troublesome_ranges" in part for part in parts):
        return np.zeros(0, dtype=np.int64)
    found = [
        tasks[first : last + 1]
        for part, tasks in zip(parts, cut(dag), strict=True)
        for first, last in part.get("troublesome_ranges", [])
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *found])


def lanes(machine: Ints, start_s: Floats, end_s: Floats) -> tuple[Ints, Ints]:
    """Return a lane for each task and each machine's lanes: overlapping tasks' lanes differ."""
    lane = np.zeros(len(machine), dtype=np.int64)
    busy: dict[int, list[float]] = {}
    for task in np.lexsort((np.arange(len(machine)), start_s, machine)).tolist():
        ends = busy.setdefault(int(machine[task]), [])
        slack = 1e-9 * abs(float(end_s[task]))
        free = next((i for i, end in enumerate(ends) if end <= start_s[task] + slack), len(ends))
        if free == len(ends):
            ends.append(0.0)
        ends[free] = float(end_s[task])
        lane[task] = free
    width = np.array([len(busy[int(j)]) for j in machine], dtype=np.int64)
    return lane, width


def _colours(stages: int) -> Floats:
    """Return colours: neighbouring stages differ in hue by the golden angle, and in lightness."""
    from matplotlib.colors import hsv_to_rgb

    index = np.arange(max(stages, 1))
    hue = (0.58 + index * 0.381966) % 1.0
    value = np.where(index % 2 == 0, 0.86, 0.70)
    rgb = hsv_to_rgb(np.stack([hue, np.full(len(index), 0.52), value], axis=1))
    return np.asarray(rgb, dtype=np.float64)


def _bars(axes: Any, dag: Dag, plan: Plan) -> None:
    from matplotlib.collections import PolyCollection

    lane, width = lanes(plan.machine, plan.start_s, plan.end_s)
    tall = 0.86 / np.maximum(width, 1)
    low = plan.machine - 0.43 + lane * tall
    left, right = plan.start_s, plan.end_s
    high = low + tall * 0.94
    corners = np.stack(
        [
            np.stack([left, low], axis=1),
            np.stack([right, low], axis=1),
            np.stack([right, high], axis=1),
            np.stack([left, high], axis=1),
        ],
        axis=1,
    )
    marked = np.zeros(dag.tasks, dtype=bool)
    marked[troublesome(dag, plan.explain)] = True
    colour = _colours(dag.stages)[dag.stage_of]
    for chosen, edge, line in ((~marked, "white", 0.4), (marked, "black", 1.3)):
        axes.add_collection(
            PolyCollection(
                list(corners[chosen]),
                facecolors=colour[chosen],
                edgecolors=edge,
                linewidths=line,
                rasterized=dag.tasks > _BARS_AS_SHAPES_MAX,
            )
        )


def _bounds(axes: Any, bounds: Bounds) -> None:
    for name, value in bounds.as_dict().items():
        if name in _LINES:
            label, colour, dashes = _LINES[name]
            text = f"{label} {value:,.4g} s"
            axes.axvline(value, color=colour, linestyle=dashes, linewidth=1.4, label=text)


def _legend(axes: Any, dag: Dag, with_t: bool) -> None:
    from matplotlib.patches import Patch

    colours = _colours(dag.stages)
    handles, _ = axes.get_legend_handles_labels()
    if with_t:
        handles.append(
            Patch(facecolor="white", edgecolor="black", linewidth=1.3, label="T (troublesome)")
        )
    for stage, name in enumerate(dag.stage_names[:_LEGEND_MAX]):
        handles.append(Patch(facecolor=colours[stage], label=f"{name} x {dag.size(stage)}"))
    if dag.stages > _LEGEND_MAX:
        handles.append(Patch(alpha=0, label=f"and {dag.stages - _LEGEND_MAX} stages more"))
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False, fontsize=8
    )
