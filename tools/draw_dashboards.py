"""Draw the Grafana dashboards from a live cluster's series, one picture each, into docs/images.

`python tools/draw_dashboards.py [--out DIR] [--url URL] [--only NAME ...]`: without the URL of a
Prometheus it starts a cluster, keeps it busy, and lets Debian's `prometheus` scrape it. Panels,
their places, units and queries are read from deploy/grafana/dashboards; the drawing is this
script's own and only resembles Grafana's, which each picture says.
"""

import argparse
import json
import math
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from screenshots import CLUSTER, keep_busy, shrink

ROOT = Path(__file__).resolve().parents[1]
BOARDS = ROOT / "deploy" / "grafana" / "dashboards"
RULES = ROOT / "deploy" / "prometheus"
# The rules look back a minute, so pictures need a long start.
WARM_S, SHOWN_S, RATE_S = 170.0, 120.0, 15
CELL_INCHES, WIDTH_INCHES = 0.31, 13.0
LEGENDS_MAX, LEGEND_CHARACTERS = 6, 125
COLOURS = (
    "#3b7dd8",
    "#e0803a",
    "#3fa66b",
    "#b9519c",
    "#8a6fd1",
    "#c9a227",
    "#d1495b",
    "#4aa3b5",
    "#7a8793",
    "#6b8e23",
    "#a0522d",
    "#2f4b7c",
)
INK, FAINT, LINE = "#22262b", "#69717b", "#e3e6ea"


class Prometheus:
    """What a Prometheus at an address knows."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def ask(self, path: str, **more: str) -> Any:
        """Return one answer of its API; raises OSError."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        query = urllib.parse.urlencode(more)
        with opener.open(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def lines(self, expr: str, end_s: float) -> list[dict[str, Any]]:
        """Return the series of an expression over the time that is shown."""
        found = self.ask(
            "query_range", query=expr, start=str(end_s - SHOWN_S), end=str(end_s), step="1"
        )
        return list(found["result"])

    def now(self, expr: str, end_s: float) -> list[dict[str, Any]]:
        """Return its instant vector."""
        return list(self.ask("query", query=expr, time=str(end_s))["result"])


# -- the cluster -----------------------------------------------------------------------------------


@contextmanager
def own_prometheus() -> Iterator[Prometheus]:
    """Yield a Prometheus that scrapes a cluster which is busy with the sample jobs."""
    from weft.client.api import Client
    from weft.client.local import LocalCluster, LocalSettings
    from weft.client.submitting import read_jobs

    with tempfile.TemporaryDirectory(prefix="weft-dashboards-") as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(CLUSTER)
        settings = LocalSettings(
            cluster=str(folder / "cluster.yaml"), scheduler="graphene", state=True, web=True
        )
        samples = resources.files("weft.client") / "samples" / "tpch"
        with resources.as_file(samples) as found:
            jobs = read_jobs(sorted(Path(found).glob("*.json")))
        with (
            LocalCluster(settings, folder / "cluster") as cluster,
            Client(cluster.address) as client,
            scraping(folder, cluster.ready) as prometheus,
        ):
            busy = threading.Event()
            busy.set()
            submitting = threading.Thread(target=keep_busy, args=(client, jobs, busy))
            submitting.start()
            try:
                time.sleep(WARM_S * 0.6)
                # Decommission a node, so that states change in the pictures.
                client.decommission("n12", 10.0)
                time.sleep(WARM_S * 0.2)
                client.recommission("n12")
                time.sleep(WARM_S * 0.2)
                yield prometheus
            finally:
                busy.clear()
                submitting.join()


@contextmanager
def scraping(folder: Path, ready: dict[str, dict[str, Any]]) -> Iterator[Prometheus]:
    """Yield Debian's Prometheus on a free port, with the repository's rules."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    targets: dict[str, list[str]] = {}
    for name, what in ready.items():
        if what.get("metrics"):
            targets.setdefault(f"weft-{name.rstrip('0123456789')}", []).append(what["metrics"])
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES / "rules.yml")],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": found}]}
            for job, found in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(30)


# -- drawing ---------------------------------------------------------------------------------------


def draw(board: dict[str, Any], prometheus: Prometheus, end_s: float, name: str) -> bytes:
    """Return a picture of one dashboard, PNG."""
    panels = board["panels"]
    high = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = Figure(figsize=(WIDTH_INCHES, CELL_INCHES * (high + 3)), facecolor="white")
    top, bottom = 1 - 2 / (high + 3), 1 / (high + 3)
    grid = GridSpec(
        high, 24, figure=figure, left=0.012, right=0.988, top=top, bottom=bottom, hspace=0, wspace=0
    )
    figure.text(
        0.014, 1 - 1 / (high + 3), board["title"], size=15, weight="bold", color=INK, va="center"
    )
    figure.text(
        0.986,
        0.35 / (high + 3),
        ha="right",
        va="center",
        size=7.5,
        color=FAINT,
        s=f"Drawn by tools/draw_dashboards.py, not by Grafana: panels and queries of {name}.json, "
        "answered by a Prometheus that scrapes a live cluster.",
    )
    for panel in panels:
        place = panel["gridPos"]
        rows = slice(place["y"], place["y"] + place["h"])
        cell = figure.add_subplot(grid[rows, place["x"] : place["x"] + place["w"]])
        cell.set_axis_off()
        if panel["type"] == "row":
            cell.text(0.004, 0.4, panel["title"], size=10.5, weight="bold", color=INK, va="center")
            continue
        box = cell.get_position()
        draw_panel(figure, box, panel, prometheus, end_s, place["h"])
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        figure.savefig(file.name, dpi=100)
        return Path(file.name).read_bytes()


def draw_panel(
    figure: Any, box: Any, panel: dict[str, Any], prometheus: Prometheus, end_s: float, cells: int
) -> None:
    """Draw a frame with a title, and in it what the panel's queries answer."""
    pad_x, pad_y = 0.004, 0.1 * box.height / cells
    frame = figure.add_axes(
        (box.x0 + pad_x / 2, box.y0 + pad_y, box.width - pad_x, box.height - 2 * pad_y)
    )
    frame.set(xticks=[], yticks=[])
    for spine in frame.spines.values():
        spine.set_color(LINE)
    frame.text(
        0.012 * 12 / max(4, 24 * box.width),
        1 - 0.45 / cells,
        panel["title"],
        size=8.5,
        weight="bold",
        color=INK,
        va="center",
        transform=frame.transAxes,
    )
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    found: list[tuple[str, dict[str, Any]]] = []
    for target in panel["targets"]:
        expr = target["expr"].replace("$__rate_interval", f"{RATE_S}s")
        expr = re.sub(r"\$(cluster|queue|node)\b", ".*", expr)
        ask = prometheus.lines if panel["type"] == "timeseries" else prometheus.now
        found += [(legend(target["legendFormat"], row), row) for row in ask(expr, end_s)]
    if not found:
        sys.exit(f"{panel['title']}: no data")
    inner = frame.get_position()
    if panel["type"] == "stat":
        value = float(found[0][1]["value"][1])
        frame.text(0.5, 0.4, said(value, unit), size=24, color="#2f7d4f", ha="center", va="center")
    elif panel["type"] == "table":
        draw_table(frame, found, unit)
    else:
        line = inner.height / cells
        axes = figure.add_axes(
            (
                inner.x0 + 0.045,
                inner.y0 + 1.9 * line,
                inner.width - 0.055,
                inner.height - 3.0 * line,
            )
        )
        stacked = "stacking" in json.dumps(panel.get("fieldConfig", {}))
        draw_lines(axes, frame, found, unit, end_s, stacked, cells)


def draw_lines(
    axes: Axes,
    frame: Axes,
    found: Sequence[tuple[str, dict[str, Any]]],
    unit: str,
    end_s: float,
    stacked: bool,
    cells: int,
) -> None:
    """Draw series over time, the last seconds of which are at the right."""
    times = np.arange(-SHOWN_S, 1.0)
    rows = []
    for _, series in found:
        values = np.full(len(times), np.nan)
        for at_s, text in series["values"]:
            values[round(float(at_s) - end_s + SHOWN_S)] = float(text)
        rows.append(values)
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(rows))]
    if stacked:
        axes.stackplot(times, np.nan_to_num(np.array(rows)), colors=colours, alpha=0.75, lw=0)
    else:
        for values, colour in zip(rows, colours, strict=True):
            axes.plot(times, values, color=colour, lw=1.1)
    most = np.nanmax(np.nansum(np.array(rows), axis=0) if stacked else np.array(rows))
    axes.set_xlim(-SHOWN_S, 0)
    most = most if most > 0 else 1.0
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f} s" if x else "now"))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    scale = 1024.0 ** max(0, int(math.log(most, 1024))) if unit == "bytes" and most > 1 else 1.0
    ticks = np.asarray(MaxNLocator(4).tick_values(0, max(most, 1e-9) / scale))
    axes.set_yticks(ticks[:-1] * scale)
    axes.set_ylim(0, most * 1.08)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: said(y, unit)))
    axes.tick_params(labelsize=6.5, colors=FAINT, length=0)
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    names = [name or "value" for name, _ in found]
    columns = max(1, min(4, LEGEND_CHARACTERS // (max(map(len, names)) + 7)))
    # Two lines, with one entry for what is left out.
    shown = min(LEGENDS_MAX, 2 * columns - 1)
    handles = [Line2D([], [], color=c, lw=2.2) for c in colours[:shown]]
    labels = names[:shown]
    if len(found) > shown:
        handles.append(Line2D([], [], lw=0))
        labels.append(f"and {len(found) - shown} more")
    frame.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0.005, 0.0),
        ncols=columns,
        fontsize=6.3,
        frameon=False,
        labelcolor=FAINT,
        handlelength=1.0,
        columnspacing=1.1,
        handletextpad=0.4,
        borderaxespad=0.2,
        labelspacing=0.25,
    )


def draw_table(frame: Axes, found: Sequence[tuple[str, dict[str, Any]]], unit: str) -> None:
    """Draw names and values, the largest first."""
    rows = sorted(((float(row["value"][1]), name) for name, row in found), reverse=True)
    for place, (value, name) in enumerate(rows[:9]):
        y = 0.82 - place * 0.088
        frame.text(0.02, y, name, size=7, color=INK, va="center", transform=frame.transAxes)
        frame.text(
            0.97,
            y,
            said(value, unit),
            size=7,
            color=INK,
            va="center",
            ha="right",
            transform=frame.transAxes,
        )


def legend(pattern: str, row: dict[str, Any]) -> str:
    """Return a legend's pattern with the labels of a series."""
    for key, value in row["metric"].items():
        pattern = pattern.replace("{{" + key + "}}", value)
    return pattern


def said(value: float, unit: str) -> str:
    """Return a value in its unit, as Grafana would write it."""
    if not math.isfinite(value):
        return "-"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "bytes":
        for size, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.0f} B"
    if unit == "s":
        if 0 < abs(value) < 1e-3:
            return f"{value * 1e6:.3g} µs"
        return f"{value * 1e3:.3g} ms" if 0 < abs(value) < 1 else f"{value:.3g} s"
    text = f"{value:.3g}" if abs(value) < 1e3 else f"{value / 1e3:.3g} K"
    return f"{text}/s" if unit == "ops" else text


def main() -> None:
    """Start what is missing, then draw every dashboard."""
    names = sorted(path.stem for path in BOARDS.glob("*.json"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--url", default="", help="http://host:port of a Prometheus to ask")
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    def all_of(prometheus: Prometheus) -> None:
        end_s = float(int(time.time()) - 2)
        for name in options.only:
            board = json.loads((BOARDS / f"{name}.json").read_text("utf-8"))
            picture = draw(board, prometheus, end_s, name)
            shrink(picture, options.out / f"dashboard-{name}.png")
            print(f"dashboard-{name}.png")

    if options.url:
        all_of(Prometheus(options.url))
        return
    if shutil.which("prometheus") is None:
        sys.exit("the package prometheus is not installed: give --url")
    with own_prometheus() as prometheus:
        all_of(prometheus)


if __name__ == "__main__":
    main()
