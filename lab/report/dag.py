"""Drawing a job's DAG by levels, with its critical path."""

from collections.abc import Sequence
from itertools import pairwise

import networkx as nx
from matplotlib.figure import Figure

HOT, COLD = {"fc": "#fef2f2", "ec": "#dc2626"}, {"fc": "#f9fafb", "ec": "#9ca3af"}
BOX = {"boxstyle": "round,pad=0.35", "lw": 1.2}


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


def draw_dag(title: str, stages: Sequence[dict[str, str]]) -> Figure:
    """Draw stages left to right by level; the critical path is red."""
    graph = stage_graph(stages)
    levels = [sorted(level) for level in nx.topological_generations(graph)]
    tallest = max((len(level) for level in levels), default=1)
    figure = Figure(figsize=(max(6.0, 1.9 * len(levels)), max(2.5, 0.62 * tallest)))
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=10)
    place = {
        stage: (x * 1.9, (tallest - len(level)) / 2 + y)
        for x, level in enumerate(levels)
        for y, stage in enumerate(level)
    }
    critical = critical_path(graph) if len(graph) else []
    red = set(pairwise(critical))
    for parent, child in graph.edges:
        hot = (parent, child) in red
        axes.annotate(
            "",
            place[child],
            place[parent],
            arrowprops={
                "arrowstyle": "-|>",
                "color": "#dc2626" if hot else "#9ca3af",
                "lw": 2 if hot else 1,
                "shrinkA": 26,
                "shrinkB": 26,
            },
        )
    for stage, (x, y) in place.items():
        data = graph.nodes[stage]
        hot = stage in critical
        axes.text(
            x,
            y,
            f"{stage}\n{data['tasks']} x {data['duration_s']:.4g} s",
            ha="center",
            va="center",
            fontsize=8,
            bbox=BOX | (HOT if hot else COLD),
        )
    axes.set_xlim(-1.0, 1.9 * len(levels) - 0.9)
    axes.set_ylim(-0.7, tallest - 0.3)
    return figure
