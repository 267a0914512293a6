"""Does the simulator tell the truth? A live run against its simulation, JCT by JCT.

    python -m lab.studies.fidelity record FOLDER --pace prompt --mode emulated
    python -m lab.studies.fidelity compare FOLDER

`record` runs jobs of a few stages on a cluster of real processes in wall-clock time, as they
arrive, and keeps tapes. `compare` simulates the same jobs on the same nodes twice: with nothing but
the settings of the run, where messages, launches and plans take no time; and with the delays of
messages, timers, launches and plans that the tapes tell (`sim.replay.recorded_delays`), the mean of
some seeds. Tasks that were commands last what they lasted. The machine should be quiet while it
records: what it could not do in time shows.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.replay import whatif
from sim.replay.rebuild import Cut, survey
from sim.replay.recorded_delays import Delays
from sim.settings import SimSettings
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.client.submitting import read_jobs
from weft.client.tables import table
from weft.model.errors import InputError, WeftError
from weft.model.job import Edge, Job, Stage
from weft.runtime.tapefile import find_tapes

NODE = "4vcores,16384memory_mb"
# Four such tasks fit beside a master.
DEMAND = {"vcores": 0.9, "memory_mb": 1024.0}
JOBS, NODES, INTERARRIVAL_S = 100, 20, 0.8
ROLES = ("rm", "am", "nm")
# A message takes longer than this.
MOVED_S = 1e-3


def demo_jobs() -> list[Job]:
    """Return the jobs that `weft demo` runs."""
    with resources.as_file(resources.files("weft.client") / "samples" / "tpch") as folder:
        return read_jobs(sorted(Path(folder).glob("*.json")))


def drawn_jobs(count: int, seed: int, interarrival_s: float = INTERARRIVAL_S) -> list[Job]:
    """Return jobs of a chain of two to five stages with side inputs, 1 to 6 tasks of 3 to 7 s."""
    rng = np.random.default_rng([seed, 19])
    arrivals = np.cumsum(rng.exponential(interarrival_s, count))
    jobs = []
    for number, arrival_s in enumerate(arrivals.tolist()):
        stages: list[Stage] = []
        for place in range(int(rng.integers(2, 6))):
            parents = [Edge(f"s{place - 1}")] if place and rng.random() < 0.8 else []
            tasks, duration_s = int(rng.integers(1, 7)), float(rng.uniform(3, 7))
            stages.append(Stage(f"s{place}", tasks, duration_s, DEMAND, tuple(parents)))
        jobs.append(Job(f"job{number:03d}", tuple(stages), arrival_s=arrival_s))
    return jobs


def record(jobs: Sequence[Job], settings: LocalSettings, folder: Path) -> None:
    """Run the jobs live as they arrive; raises WeftError where one did not succeed."""
    with LocalCluster(settings, folder) as cluster, Client(cluster.address) as client:
        # By then, what starts up has done so.
        time.sleep(2 * whatif.WARM_S / settings.time_scale)
        began_s, apps = time.monotonic(), []
        for job in jobs:
            wait_s = job.arrival_s / settings.time_scale - (time.monotonic() - began_s)
            time.sleep(max(0.0, wait_s))
            apps.append(client.submit(job))
        reports = client.wait(apps)
        bad = [one.name for one in reports.values() if one.final_status != "SUCCEEDED"]
    if bad:
        raise WeftError(f"not succeeded: {', '.join(bad)}")


class Recorded(NamedTuple):
    """What the tapes of a live run tell."""

    surveyed: Cut
    seen: whatif.Seen
    settings: SimSettings


def read(folder: Path) -> Recorded:
    """Read the tapes of a live run."""
    tapes = find_tapes(folder)
    found = {role: [tape.rows for tape in tapes if tape.role == role] for role in ROLES}
    if not found["rm"]:
        raise InputError(str(folder), "has no tape of a Resource Manager")
    surveyed = survey(found["rm"], [*found["am"], *found["nm"]], math.inf)
    seen = surveyed.seen
    master, node = (
        next(filter(None, (whatif.first_core(tape()) for tape in found[role])), None)
        for role in ("am", "nm")
    )
    assert seen.parts is not None
    return Recorded(surveyed, seen, whatif.settings_of(seen.parts, master, node))


def moved(recorded: Recorded, seeds: int, by_s: float) -> tuple[float, float]:
    """Return how far a simulation is from itself with jobs up to `by_s` later each.

    Returns the mean and the largest difference of a job's completion time, as a share, over `seeds`
    draws: no simulation can be nearer to a live run than what differs by so little is to itself.
    """
    seen, settings = recorded.seen, recorded.settings
    cluster, jobs = whatif.cluster_of(seen), whatif.jobs_of(seen, seen.commands)
    plain = np.array(whatif.completion_times(cluster, jobs, settings, Delays({}), {}))
    found = []
    for seed in range(seeds):
        late_s = np.random.default_rng([seed, 20]).uniform(0.0, by_s, len(jobs)).tolist()
        later = [
            replace(job, arrival_s=job.arrival_s + s) for job, s in zip(jobs, late_s, strict=True)
        ]
        times = np.array(whatif.completion_times(cluster, later, settings, Delays({}), {}))
        found.append(np.abs(times - plain) / plain)
    return float(np.mean(found)), float(np.max(found))


def compare(recorded: Recorded, seeds: int) -> list[whatif.Jct]:
    """Return a recorded run's jobs: live, with the run's delays (`same_s`), and with none."""
    surveyed, seen, settings = recorded
    measured, cluster = seen.commands, whatif.cluster_of(seen)
    jobs = whatif.jobs_of(seen, measured)
    plain = whatif.completion_times(cluster, jobs, settings, Delays({}), {})
    delays = surveyed.delays.timed(_origin_s(seen))
    runs = [_run(seen, jobs, one, delays, plain) for one in whatif.seeded(settings, seeds)]
    return whatif.mean_of(runs)


def _origin_s(seen: whatif.Seen) -> float:
    """Return the time of the recorded run at which its simulation begins."""
    return min(arrival_s for _, arrival_s in seen.jobs.values()) - whatif.WARM_S


def _beats(seen: whatif.Seen, delays: Delays) -> dict[str, float]:
    """Return when each node beat last before the first job, by its tape, in simulated time."""
    origin_s, found = _origin_s(seen), whatif.beats_of(seen)
    for node, times in delays.beats.items():
        before = [s - origin_s for s in times if 0 <= s - origin_s < whatif.WARM_S]
        if before:
            found[node] = before[-1]
    return found


def _run(
    seen: whatif.Seen,
    jobs: Sequence[Job],
    settings: SimSettings,
    delays: Delays,
    plain: Sequence[float],
) -> list[whatif.Jct]:
    cluster, beats = whatif.cluster_of(seen), _beats(seen, delays)
    times = whatif.completion_times(cluster, jobs, settings, delays, beats)
    return [
        whatif.Jct(app, job.name, whatif.recorded_s(seen, app, arrival_s), times[i], plain[i])
        for i, (app, (job, arrival_s)) in enumerate(seen.jobs.items())
    ]


def errors_of(rows: Sequence[whatif.Jct], name: str) -> np.ndarray:
    """Return how far a simulation is off, job by job, over live times; positive: too slow."""
    live = np.array([row.recorded_s for row in rows])
    found = np.array([getattr(row, name) for row in rows])
    if min(live.min(), found.min()) <= 0:
        raise WeftError("some job did not succeed every time: there is nothing to compare")
    return np.asarray((found - live) / live)


def told(rows: Sequence[whatif.Jct], name: str) -> str:
    """Return the errors of a simulation in one line."""
    errors = 100 * errors_of(rows, name)
    mean = 100 * (
        np.mean([getattr(r, name) for r in rows]) / np.mean([r.recorded_s for r in rows]) - 1
    )
    return (
        f"mean JCT {mean:+.2f} %; job by job: mean {np.abs(errors).mean():.2f} %, "
        f"bias {errors.mean():+.2f} %, worst {np.abs(errors).max():.2f} %"
    )


def main() -> None:
    """Record a live run, or compare one with its simulation."""
    parser = argparse.ArgumentParser(prog="python -m lab.studies.fidelity")
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--interarrival-s", type=float, default=INTERARRIVAL_S, help="mean, s")
    parser.add_argument("--scheduler", default="capacity")
    parser.add_argument("--pace", choices=("prompt", "yarn"), default="prompt")
    parser.add_argument("--mode", choices=("emulated", "process"), default="emulated")
    parser.add_argument("--seed", type=int, default=0, help="of the jobs that are drawn")
    parser.add_argument("--seeds", type=int, default=3, help="simulations to take the mean of")
    parser.add_argument("--each", action="store_true", help="print every job")
    args = parser.parse_args()
    if args.what == "record":
        settings = LocalSettings(
            cluster=f"{args.nodes}x{NODE}",
            scheduler=args.scheduler,
            pace=args.pace,
            mode=args.mode,
            tape=args.folder / "tapes",
        )
        jobs = drawn_jobs(args.jobs, args.seed, args.interarrival_s)
        record(jobs, settings, args.folder)
        return
    recorded = read(args.folder / "tapes")
    rows = compare(recorded, args.seeds)
    if args.each:
        heads = ("job", "live s", "with its delays s", "without s")
        table(heads, [(r.name, r.recorded_s, r.same_s, r.changed_s) for r in rows])
    print(f"{len(rows)} jobs, mean JCT live {np.mean([r.recorded_s for r in rows]):.2f} s")
    print(f"with the delays of the run: {told(rows, 'same_s')}")
    print(f"with none:                  {told(rows, 'changed_s')}")
    mean, worst = moved(recorded, args.seeds, MOVED_S)
    print(
        f"with none, over itself with each job up to {MOVED_S * 1e3:g} ms later: "
        f"job by job: mean {100 * mean:.2f} %, worst {100 * worst:.2f} %"
    )


if __name__ == "__main__":
    try:
        main()
    except WeftError as error:
        sys.exit(f"error: {error}")
