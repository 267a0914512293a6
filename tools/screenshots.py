"""Take the pictures of docs/images from a live cluster's pages, in light and dark.

`python tools/screenshots.py [--out DIR] [--url URL]`: without a URL it starts a cluster of its own
and runs the sample jobs on it. Needs Chromium (`--chromium`) and the `dev` extra's playwright.
"""

import argparse
import io
import itertools
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The test kit is not installed.
sys.path.insert(0, str(ROOT))
FIRST_PICTURE_AFTER_S = 90.0
BETWEEN_SUBMISSIONS_S = 2.5
SLOWER = 6.0
SHOWN_APPLICATION = "q21"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
CLUSTER = """
nodes: [{count: 12, capacity: {vcores: 5, memory_mb: 32768, disk_mbps: 400, network_mbps: 1000},
         racks: 2}]
queues: {root: {prod: {capacity: 0.6}, research: {capacity: 0.3, max_capacity: 0.6},
                default: {capacity: 0.1}}}
"""
# Maps a name to (path, height, theme).
PAGES = {
    "overview": ("/cluster", 880, "light"),
    "overview-dark": ("/cluster", 880, "dark"),
    "applications": ("/cluster/apps", 760, "light"),
    "application": ("/cluster/app/{app}", 1500, "light"),
    "application-dark": ("/cluster/app/{app}", 1500, "dark"),
    "stage": ("/cluster/app/{app}/stage/1", 980, "light"),
    "nodes": ("/cluster/nodes", 820, "light"),
    "queues": ("/cluster/queues", 760, "dark"),
    "events": ("/cluster/events", 760, "light"),
    "settings": ("/cluster/settings", 760, "dark"),
}

# Maps a name to (schedulers, path, width, height, theme).
PLAYED = {
    "player": (["graphene"], "/cluster/play?decision=500", 1440, 900, "light"),
    "player-two": (["capacity", "graphene"], "/cluster/play?t=130", 1600, 1000, "dark"),
}
WORK = ("etl", "ads", "report", "index", "crawl", "fraud", "search")
QUEUES = ("prod", "research", "adhoc")
SMALL = """
nodes: [{count: 20, capacity: {vcores: 4, memory_mb: 16384, disk_mbps: 200, network_mbps: 300}}]
queues: {root: {prod: {capacity: 0.5}, research: {capacity: 0.3}, adhoc: {capacity: 0.2}}}
"""


def main() -> None:
    """Start what is missing, then take every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--url", default="", help="http://host:port of a running web process")
    names = [*PAGES, *PLAYED]
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "")
    options = parser.parse_args()
    if not options.chromium:
        sys.exit("no chromium on this machine: give --chromium PATH")
    options.out.mkdir(parents=True, exist_ok=True)
    live = {name: page for name, page in PAGES.items() if name in options.only}
    played = {name: page for name, page in PLAYED.items() if name in options.only}
    if live and options.url:
        take(options, options.url.rstrip("/"), live)
    elif live:
        with own_cluster() as url:
            take(options, url, live)
    for name, (schedulers, path, width, height, theme) in played.items():
        with own_player(schedulers) as url:
            options.width = width
            take(options, url, {name: (path, height, theme)})


@contextmanager
def own_player(schedulers: list[str]) -> Iterator[str]:
    """Yield the pages of the same thousand tasks under each scheduler, played."""
    import numpy as np

    from lab.functions import cluster_of
    from lab.play.server import make_player
    from lab.play.views import Run
    from sim.replay.recorded_run import Watched, of_simulation
    from sim.settings import SimSettings
    from testkit.browser import Served
    from weft.policies.presets import preset
    from weft.runtime.role_settings import WebSettings
    from weft.workloads.synth import generate

    jobs = []
    drawn = generate("tpch_like", 26, np.random.default_rng(5), interarrival_s=5.0)
    for number, job in enumerate(drawn):
        stages = [replace(stage, tasks=-(-stage.tasks // 8)) for stage in job.stages]
        name, queue = f"{WORK[number % len(WORK)]}-{number + 1}", QUEUES[number % len(QUEUES)]
        jobs.append(replace(job, name=name, queue=queue, stages=tuple(stages)))
    with tempfile.TemporaryDirectory(prefix="weft-pictures-") as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(SMALL)
        cluster = cluster_of(file)
    runs = []
    for scheduler in schedulers:
        run = Watched(cluster, jobs, SimSettings(preset(scheduler)))
        run.run()
        runs.append(Run(of_simulation(scheduler, scheduler, run)))
    settings = WebSettings(port=0, plan_limit_s=0)  # type: ignore[call-arg]
    served = Served(lambda: make_player(runs, settings))
    try:
        yield served.url
    finally:
        served.close()


@contextmanager
def own_cluster() -> Iterator[str]:
    """Yield the pages of a cluster that is busy with the sample jobs."""
    from weft.client.api import Client
    from weft.client.local import LocalCluster, LocalSettings
    from weft.client.submitting import read_jobs
    from weft.model.job import Job

    with tempfile.TemporaryDirectory(prefix="weft-pictures-") as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(CLUSTER)
        settings = LocalSettings(cluster=str(file), scheduler="graphene", web=True)
        samples = resources.files("weft.client") / "samples" / "tpch"
        with resources.as_file(samples) as found:
            jobs: list[Job] = read_jobs(sorted(Path(found).glob("*.json")))
        with LocalCluster(settings) as cluster, Client(cluster.address) as client:
            busy = threading.Event()
            busy.set()
            submitting = threading.Thread(target=keep_busy, args=(client, jobs, busy))
            submitting.start()
            try:
                time.sleep(FIRST_PICTURE_AFTER_S)
                yield cluster.url.removesuffix("/cluster")
            finally:
                busy.clear()
                submitting.join()


def keep_busy(client: Any, jobs: list[Any], busy: threading.Event) -> None:
    """Submit the jobs over and over, several at once, with durations that an eye can follow."""
    users = ("ada", "grace", "edsger")
    queues = ("prod", "research", "default")
    for number in itertools.count():
        job = slower(jobs[(number * 5) % len(jobs)])
        client.submit(replace(job, queue=queues[number % 7 % 3], user=users[number % 3]))
        for _ in range(10):
            if not busy.is_set():
                return
            time.sleep(BETWEEN_SUBMISSIONS_S / 10)


def slower(job: Any) -> Any:
    """Return a job with tasks of a second: the samples come from a fast machine."""
    stages = []
    for stage in job.stages:
        actual = stage.actual_duration_s
        if isinstance(actual, tuple):
            actual = tuple(SLOWER * one for one in actual)
        elif actual is not None:
            actual = SLOWER * actual
        stages.append(
            replace(stage, duration_s=SLOWER * stage.duration_s, actual_duration_s=actual)
        )
    return replace(job, stages=tuple(stages))


def take(options: argparse.Namespace, url: str, pages: dict[str, tuple[str, int, str]]) -> None:
    """Open each page in its theme, wait until it is drawn, and keep a picture of it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=options.chromium, args=FLAGS)
        for name, (found, height, theme) in pages.items():
            path = found
            size: Any = {"width": options.width, "height": height}
            shown: Any = theme
            page = browser.new_page(viewport=size, color_scheme=shown)
            page.on("console", lambda m: print(f"console: {m.type}: {m.text}", file=sys.stderr))
            page.on("pageerror", lambda e: print(f"page error: {e}", file=sys.stderr))
            if "{app}" in path:
                page.goto(f"{url}/cluster/apps?state=running&q={SHOWN_APPLICATION}")
                first = page.locator("tbody tr td a.mono").last
                path = path.format(app=(first.get_attribute("href") or "").rpartition("/")[2])
            page.goto(url + path)
            page.wait_for_selector("#main:not([aria-busy])")
            page.wait_for_load_state("networkidle" if "play" in path else "load")
            page.wait_for_timeout(9000 if "app/" in path else 1500)
            shrink(page.screenshot(), options.out / f"{name}.png")
            print(f"{name}: {url}{path}")
            page.close()
        browser.close()


def shrink(picture: bytes, file: Path) -> None:
    """Write flat colours as no more than 256 of them: a third of the size."""
    from PIL import Image

    full = Image.open(io.BytesIO(picture)).convert("RGB")
    small = full.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


if __name__ == "__main__":
    main()
