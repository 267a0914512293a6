"""The picture of a job's DAG in a report: every edge can be followed."""

from random import Random

import pytest
from matplotlib.path import Path as Curve

from lab.report.dag import draw_dag, routes, stage_graph

# Inches that a picture's text is measured off by.
SLACK = 0.02


@pytest.mark.parametrize("seed", range(5))
def test_no_edge_runs_behind_the_box_of_another_stage(seed: int) -> None:
    """Boxes and edges do not meet but where an edge begins or ends."""
    draw = Random(seed)
    stages = [
        {
            "stage": f"stage {n}" * draw.randint(1, 3),
            "tasks": "3",
            "duration_s": f"{draw.random() * 30}",
            "parents": "",
        }
        for n in range(12)
    ]
    for n, one in enumerate(stages):
        one["parents"] = ";".join(
            f"{parent['stage']}:one_to_one" for parent in stages[:n] if draw.random() < 0.3
        )
    figure = draw_dag("a job", stages)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    texts = {text.get_text().partition("\n")[0]: text for text in axes.texts}
    edges = list(routes(stage_graph(stages)))
    assert len(axes.patches) == len(edges) > 8
    for edge, patch in zip(edges, axes.patches, strict=True):
        line = patch.get_path().transformed(axes.transData).to_polygons(closed_only=False)
        for stage in texts.keys() - set(edge):
            box = texts[stage].get_bbox_patch()
            assert box is not None
            within = box.get_window_extent().padded(-SLACK * figure.dpi)
            behind = any(Curve(part).intersects_bbox(within, filled=False) for part in line)
            assert not behind, f"{edge} behind {stage}"
