"""Draw the pictures of docs/course from the runs of its pages: `make pictures`.

The pages' commands are run as they are printed, and what was in use is drawn from the tables that
they leave: stacked by job, a column for each run, a row for each resource.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.report.plots import COLOURS
from weft.model.job import Job
from weft.workloads.jobs_file import read_jobs

ROOT = Path(__file__).resolve().parents[1]
PAGES, IMAGES = ROOT / "docs" / "course", ROOT / "docs" / "images" / "course"


class Picture(NamedTuple):
    """What a page shows: the folders of its runs, their workload, and resources by name."""

    runs: Sequence[str]
    workload: str
    resources: Sequence[str] = ("vcores",)


PICTURES = {
    "1-line": Picture(("fifo", "sjf"), "morning.jsonl"),
    "2-shares": Picture(("fair", "drf"), "two.jsonl"),
    "3-packing": Picture(("drf", "tetris"), "phases.jsonl", ("vcores", "network_mbps")),
    "5-graphene": Picture(("tez", "graphene"), "few.jsonl"),
}
# More moments than these are drawn by what is held at so many of them.
MOMENTS_MAX = 120
# These are drawn by the page's own commands.
PLANS = {"4-order": ("bfs.svg", "critical_path.svg")}


def run_page(name: str, folder: Path) -> None:
    """Run the commands of a page in a folder."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (PAGES / f"{name}.md").read_text(), re.S | re.M)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-ec", "\n".join(blocks)],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def draw(picture: Picture, folder: Path, path: Path) -> None:
    """Draw what the runs of a page used over time."""
    jobs = list(read_jobs(folder / picture.workload))
    rows, columns = len(picture.resources), len(picture.runs)
    figure = Figure((4.2 * columns, 0.6 + 1.9 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey="row")
    for run, axes in zip(picture.runs, grid.T, strict=True):
        with (folder / run / "tasks.csv").open() as file:
            tasks = list(csv.DictReader(file))
        for resource, one in zip(picture.resources, axes, strict=True):
            _stack(one, jobs, tasks, resource)
        axes[0].set_title(run, fontsize=10)
        axes[-1].set_xlabel("s", fontsize=8)
    for resource, axes in zip(picture.resources, grid, strict=True):
        axes[0].set_ylabel(resource, fontsize=8)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=7, frameon=False)
    # Nothing in the file says when it was made.
    with mpl.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None})


def _stack(axes: Axes, jobs: Sequence[Job], tasks: Sequence[dict[str, str]], name: str) -> None:
    """Stack what the tasks of each job held of a resource."""
    changes: dict[float, list[float]] = {}
    for task in tasks:
        job = jobs[int(task["job"]) - 1]
        stage = next(one for one in job.stages if one.name == task["stage"])
        amount = stage.demand_of(int(task["index"])).get(name, 0.0)
        for when, more in ((task["start_s"], amount), (task["end_s"], -amount)):
            row = changes.setdefault(float(when), [0.0] * len(jobs))
            row[int(task["job"]) - 1] += more
    times = np.array(sorted(changes))
    held = np.cumsum([changes[time] for time in times.tolist()], axis=0).T.clip(min=0.0)
    if len(times) > MOMENTS_MAX:
        shown = np.linspace(0.0, times[-1], MOMENTS_MAX)
        held, times = held[:, times.searchsorted(shown, side="right") - 1], shown
    names = [job.name for job in jobs]
    axes.stackplot(times, held, labels=names, colors=COLOURS, step="post", linewidth=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7)


def main() -> int:
    """Draw all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in sorted([*PICTURES, *PLANS]):
        with TemporaryDirectory() as place:
            folder = Path(place)
            run_page(name, folder)
            for plan in PLANS.get(name, ()):
                shutil.copy(folder / plan, IMAGES / plan)
            if name in PICTURES:
                draw(PICTURES[name], folder, IMAGES / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
