"""Drawing a job's DAG by levels, with its critical path; edges pass between the stages' boxes."""

from collections.abc import Sequence
from itertools import pairwise

import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path as Curve
from matplotlib.text import Text

HOT, COLD = {"fc": "#fef2f2", "ec": "#dc2626"}, {"fc": "#f9fafb", "ec": "#9ca3af"}
BOX = {"boxstyle": "round,pad=0.35", "lw": 1.2}
# Inches: between the boxes of two levels, for a row with a box, for one with passing edges.
GAP, ROW, LANE = 0.8, 0.62, 0.3
# Sweeps over the levels that bring what is joined side by side.
SWEEPS = 8

# A stage at its level, or the lane in which edges from a stage pass another level.
Spot = tuple[str, int]


def stage_graph(stages: Sequence[dict[str, str]]) -> "nx.DiGraph[str]":
    """Return the DAG of a job's `stages.csv` rows; nodes carry `tasks` and `duration_s`."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for stage in stages:
        graph.add_node(
            stage["stage"], tasks=int(stage["tasks"]), duration_s=float(stage["duration_s"])
        )
    for stage in stages:
        for parent in filter(None, stage["parents"].split(";")):
            graph.add_edge(parent.rpartition(":")[0], stage["stage"])
    return graph


def critical_path(graph: "nx.DiGraph[str]") -> list[str]:
    """Return stages on the longest path by duration."""
    weighted: nx.DiGraph[str] = nx.DiGraph()
    for stage, data in graph.nodes(data=True):
        weighted.add_edge(f"{stage}\0in", f"{stage}\0out", weight=data["duration_s"])
    weighted.add_weighted_edges_from(
        (f"{parent}\0out", f"{child}\0in", 0.0) for parent, child in graph.edges
    )
    path = nx.dag_longest_path(weighted)
    return [node.partition("\0")[0] for node in path if node.endswith("\0out")]


def routes(graph: "nx.DiGraph[str]") -> dict[tuple[str, str], list[Spot]]:
    """Return the spots that each edge goes through; those from one stage share their lanes."""
    generations = enumerate(nx.topological_generations(graph))
    level_of = {stage: level for level, generation in generations for stage in generation}
    return {
        (parent, child): [
            *((parent, level) for level in range(level_of[parent], level_of[child])),
            (child, level_of[child]),
        ]
        for parent, child in graph.edges
    }


def heights(graph: "nx.DiGraph[str]") -> dict[Spot, float]:
    """Return the height of each spot's middle, inches; the middle of a level is at 0.

    A level's order follows the mean height of what its spots are joined with in the level beside
    it, to and fro (Sugiyama, Tagawa, Toda 1981).
    """
    levels: list[list[Spot]] = [
        [(stage, level) for stage in sorted(generation)]
        for level, generation in enumerate(nx.topological_generations(graph))
    ]
    rows = {spot: ROW for level in levels for spot in level}
    joined: nx.Graph[Spot] = nx.Graph()
    joined.add_nodes_from(rows)
    for way in routes(graph).values():
        nx.add_path(joined, way)
    for spot in joined:
        if spot not in rows:
            rows[spot] = LANE
            levels[spot[1]].append(spot)
    found: dict[Spot, float] = {}
    for level in levels:
        found |= _stacked(level, rows)
    there = [(number, number - 1) for number in range(1, len(levels))]
    back = [(beside, number) for number, beside in reversed(there)]
    for number, beside in [*there, *back] * SWEEPS:
        middle = dict(found)
        for spot in levels[number]:
            if near := [found[other] for other in joined[spot] if other[1] == beside]:
                middle[spot] = sum(near) / len(near)
        levels[number].sort(key=lambda spot: (middle[spot], spot))
        found |= _stacked(levels[number], rows)
    return found


def _stacked(level: Sequence[Spot], rows: dict[Spot, float]) -> dict[Spot, float]:
    found, top = {}, -sum(rows[spot] for spot in level) / 2
    for spot in level:
        found[spot] = top + rows[spot] / 2
        top += rows[spot]
    return found


def draw_dag(title: str, stages: Sequence[dict[str, str]]) -> Figure:
    """Draw stages left to right by level; the critical path is red."""
    graph = stage_graph(stages)
    critical = critical_path(graph) if len(graph) else []
    middle = heights(graph)
    # One inch is one unit of the axes.
    figure = Figure()
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=10)
    columns: list[tuple[float, float]] = []
    half_of: dict[str, float] = {}
    for level, generation in enumerate(nx.topological_generations(graph)):
        texts = {
            stage: axes.text(
                0,
                middle[stage, level],
                "{}\n{tasks} x {duration_s:.4g} s".format(stage, **graph.nodes[stage]),
                ha="center",
                va="center",
                fontsize=8,
                bbox=BOX | (HOT if stage in critical else COLD),
            )
            for stage in generation
        }
        figure.draw_without_rendering()
        half_of |= {stage: _width(text) / 2 for stage, text in texts.items()}
        widest = max(half_of[stage] for stage in texts)
        left = columns[-1][1] + GAP if columns else 0.0
        columns.append((left, left + 2 * widest))
        for text in texts.values():
            text.set_x(left + widest)
    red = set(pairwise(critical))
    for edge, way in routes(graph).items():
        axes.add_patch(_arrow(way, middle, columns, half_of, hot=edge in red))
    reach = max((abs(y) for y in middle.values()), default=0.0) + ROW / 2
    right = max(6.0, columns[-1][1] if columns else 0.0)
    figure.set_size_inches(right, 2 * reach)
    axes.set_xlim(0, right)
    axes.set_ylim(-reach, reach)
    return figure


def _width(text: Text) -> float:
    box = text.get_bbox_patch()
    assert box is not None
    assert text.figure is not None
    return float(box.get_window_extent().width / text.figure.dpi)


def _arrow(
    way: Sequence[Spot],
    middle: dict[Spot, float],
    columns: Sequence[tuple[float, float]],
    half_of: dict[str, float],
    *,
    hot: bool,
) -> FancyArrowPatch:
    """Return an edge: level where boxes are, curved between the columns of two levels."""
    first, last = way[0], way[-1]
    points = [(sum(columns[first[1]]) / 2 + half_of[first[0]], middle[first])]
    codes = [Curve.MOVETO]
    for here, there in pairwise(way):
        right, left = columns[here[1]][1], columns[there[1]][0]
        half = (right + left) / 2
        points.append((right, middle[here]))
        points += [(half, middle[here]), (half, middle[there]), (left, middle[there])]
        codes += [Curve.LINETO, *[Curve.CURVE4] * 3]
    points.append((sum(columns[last[1]]) / 2 - half_of[last[0]], middle[last]))
    return FancyArrowPatch(
        path=Curve(points, [*codes, Curve.LINETO]),
        arrowstyle="-|>",
        mutation_scale=10,
        color="#dc2626" if hot else "#9ca3af",
        lw=2 if hot else 1,
        zorder=1 + hot,
        shrinkA=0,
        shrinkB=0,
    )
