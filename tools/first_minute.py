"""Does any process of a fresh checkout's cluster stall in its first minute?

    python -m tools.first_minute [PRESET ...] [--seconds 60] [--kept]

Starts a cluster of emulated nodes under each preset with no kernel compiled before (`--kept`: with
those of this checkout), runs TPC-H queries on it, and reads from each process how late its event
loop was with its timers, every quarter of a second since it serves. Exits with 1 where one was
later than 50 ms. Also tells when the cluster served and the mean interval of its heartbeats.
"""

import argparse
import math
import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.ids import AppId
from weft.model.job import Job
from weft.policies.presets import PRESETS
from weft.workloads.jobs_file import load_jobs

STALL_MIN_S = 0.05
NODES, AT_ONCE = 20, 13
SAMPLES = Path(__file__).resolve().parents[1] / "weft/client/samples/tpch"


def minute(preset: str, seconds: float) -> bool:
    """Run one preset's cluster; print its row, and return whether no process was late."""
    jobs = load_jobs(sorted(SAMPLES.glob("*.json")))
    began_s = time.monotonic()
    with (
        LocalCluster(LocalSettings(nodes=NODES, scheduler=preset, pace="yarn")) as cluster,
        Client(cluster.address) as client,
    ):
        ready_s = time.monotonic() - began_s
        interval_s = _load(cluster, client, jobs, seconds)
        late = {name: _late(cluster, name) for name in cluster.ready}
    told = ", ".join(f"{name} {over:g} of {all_:g} over" for name, (over, all_) in late.items())
    print(
        f"{preset}: serves after {ready_s:.1f} s; heartbeats every {interval_s:.4f} s; "
        f"{told} {STALL_MIN_S * 1e3:g} ms",
        flush=True,
    )
    return not any(over for over, _ in late.values())


def _load(cluster: LocalCluster, client: Client, jobs: list[Job], seconds: float) -> float:
    """Keep some queries running for so long; return the heartbeats' mean interval, s, or NaN."""
    until_s, number = time.monotonic() + seconds, 0
    running: list[AppId] = []
    heard = [_beats(cluster)]
    while time.monotonic() < until_s:
        while len(running) < AT_ONCE:
            running.append(client.submit(jobs[number % len(jobs)]))
            number += 1
        time.sleep(1.0)
        running = [app for app in running if not client.application(app).final_status]
        heard.append(_beats(cluster))
    return _interval(heard)


def _interval(heard: list[tuple[float, float]]) -> float:
    """Return the mean time, s, between a node's heartbeats, of times and counts; NaN without any.

    By a line through all the counts: by the first and the last alone, the time that one scrape
    takes would be part of the mean.
    """
    if heard[-1][1] == heard[0][1]:
        return math.nan
    times, counts = np.array(heard).T
    return NODES / float(np.polyfit(times, counts, 1)[0])


def _beats(cluster: LocalCluster) -> tuple[float, float]:
    """Return a time, s, and how many heartbeats the manager heard up to it."""
    asked_s = time.monotonic()
    samples = _scraped(cluster, "rm")
    whole = sum(
        s.value
        for s in samples
        if s.name == "weft_handle_seconds_count" and s.labels["event"] == "NodeHeartbeated"
    )
    idle = sum(s.value for s in samples if s.name == "weft_idle_heartbeats_total")
    return (asked_s + time.monotonic()) / 2, whole + idle


def _late(cluster: LocalCluster, name: str) -> tuple[float, float]:
    """Return how often a process's loop was late, of how many times."""
    counts = {
        float(s.labels["le"]): s.value
        for s in _scraped(cluster, name)
        if s.name == "weft_event_loop_lag_seconds_bucket"
    }
    return counts[float("inf")] - counts[STALL_MIN_S], counts[float("inf")]


def _scraped(cluster: LocalCluster, name: str) -> list[Sample]:
    with urllib.request.urlopen(f"http://{cluster.ready[name]['metrics']}/metrics") as page:
        text = page.read().decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def main() -> None:
    """Run each preset that is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", default=list(PRESETS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kept", action="store_true")
    told = parser.parse_args()
    if unknown := [name for name in told.presets if name not in PRESETS]:
        parser.error(f"no preset {unknown[0]!r}; there are: {', '.join(PRESETS)}")
    if not 0 < told.seconds < math.inf:
        parser.error("--seconds is how long each preset runs: more than 0")
    fine = True
    for preset in told.presets:
        with tempfile.TemporaryDirectory(prefix="weft-kernels-") as folder:
            if not told.kept:
                os.environ["NUMBA_CACHE_DIR"] = folder
            fine &= minute(preset, told.seconds)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
