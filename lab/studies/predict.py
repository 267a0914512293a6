"""How good are predictions? Jobs whose estimates are wrong run in the simulator, which is asked.

`python -m lab.studies.predict`. The sample jobs have estimates and what tasks of theirs really
took; `--errors` multiplies the latter by errors of jobs, stages and tasks (log-normal). Half of the
jobs come at the beginning, the others at once when a third of those have ended. Then, so that under
any scheduler jobs wait, and when half of all have ended, the manager is asked, as a client would,
and each job that waits or runs is predicted; then the run goes on. With `--later`, a part of the
second half is submitted after the first prediction, which knows nothing of it.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lab.studies.fidelity import demo_jobs
from lab.worker_pool import WorkerPool
from sim.cluster import Simulation
from sim.replay.client_view import AskedManager
from sim.replay.predict import DRAWS, predict
from sim.replay.snapshot import read_state
from sim.settings import SimSettings
from weft.client.tables import table
from weft.model.cluster import ClusterSpec
from weft.model.job import Job, Stage
from weft.policies.presets import preset
from weft.workloads.cluster_file import load_cluster

CLUSTER = "3x8vcores,32768memory_mb,800disk_mbps,1000network_mbps"
JOBS_PER_HALF = 12
# How many jobs have ended at the two moments of prediction.
FIRST_MOMENT_ENDED, SECOND_MOMENT_ENDED = 4, 12
# Just after the moment, what came is known and none of it runs.
JUST_S = 0.001


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction beside what became of it.

    `error` is that of the end, over the time that was left. `inside`: the end lay in the band.
    `start_error_s` is 0 for a job that runs.
    """

    waits: bool
    error: float
    bias: float
    inside: bool
    start_error_s: float


def workload(rng: np.random.Generator, errors: Sequence[float]) -> list[Job]:
    """Sample jobs in a random order: both halves, as if all came at the beginning."""
    samples = demo_jobs()
    jobs = []
    for number in range(2 * JOBS_PER_HALF):
        job = samples[int(rng.integers(len(samples)))]
        of_job = float(rng.normal(0.0, errors[0]))
        stages = tuple(_wrong(stage, of_job, errors, rng) for stage in job.stages)
        name, arrival_s = f"{job.name}-{number}", 5.0 + 0.2 * number
        jobs.append(replace(job, name=name, stages=stages, arrival_s=arrival_s, history_key=""))
    return jobs


def _wrong(stage: Stage, of_job: float, errors: Sequence[float], rng: np.random.Generator) -> Stage:
    """Return a stage whose tasks take what they took, times errors."""
    shared = of_job + float(rng.normal(0.0, errors[1]))
    took = tuple(
        stage.actual_duration_of(task) * float(np.exp(shared + rng.normal(0.0, errors[2])))
        for task in range(stage.tasks)
    )
    overrides = tuple(replace(one, actual_duration_s=None) for one in stage.overrides)
    return replace(stage, actual_duration_s=took, overrides=overrides)


def outcomes(
    scheduler: str, later: float, errors: Sequence[float], pace: str, draws: int, seed: int
) -> list[Outcome]:
    """Return predictions of one run, with what became of them."""
    rng = np.random.default_rng([seed, 77])
    cluster: ClusterSpec = load_cluster(CLUSTER)
    jobs = workload(rng, errors)
    settings = SimSettings(preset(scheduler), seed, prompt=pace == "prompt")
    first_s = _ended_s(cluster, jobs[:JOBS_PER_HALF], settings, FIRST_MOMENT_ENDED)
    for number in range(JOBS_PER_HALF, 2 * JOBS_PER_HALF):
        late = number >= JOBS_PER_HALF * (2.0 - later)
        came_s = first_s + (float(rng.uniform(1.0, 60.0)) if late else 0.0)
        jobs[number] = replace(jobs[number], arrival_s=came_s)
    moments = (first_s, _ended_s(cluster, jobs, settings, SECOND_MOMENT_ENDED))
    simulation = Simulation(cluster, jobs, settings)
    told = []
    for moment_s in moments:
        at_s = moment_s + JUST_S
        simulation.go_on(at_s)
        state = read_state(AskedManager(simulation.manager, at_s), cluster)
        apps = [one.report.app_id for one in state.apps]
        told += [(at_s, one) for one in predict(state, settings, apps, None, draws, seed)]
    simulation.run()
    finished = {row.app: row.finish_s for row in simulation.recorder.jobs}
    columns = simulation.recorder.columns()
    found = []
    for at_s, one in told:
        end_s, left_s = finished[one.app], finished[one.app] - at_s
        off_s = one.end.usual_s - end_s
        start_off_s = 0.0
        if one.start is not None:
            began_s = float(columns.start_s[columns.app == one.app].min())
            start_off_s = abs(one.start.usual_s - began_s)
        inside = one.end.early_s <= end_s <= one.end.late_s
        found.append(Outcome(one.waits, abs(off_s) / left_s, off_s / left_s, inside, start_off_s))
    return found


def _ended_s(cluster: ClusterSpec, jobs: Sequence[Job], settings: SimSettings, count: int) -> float:
    """Return when so many of the jobs have ended, s."""
    rows = Simulation(cluster, jobs, settings).run().jobs
    return sorted(row.finish_s for row in rows)[count - 1]


def interval(values: Sequence[float], measure: str, rng: np.random.Generator) -> str:
    """Return median or mean of runs' values with a 95 % interval by resampling runs."""
    data = np.array(values)
    of = np.median if measure == "median" else np.mean
    again = [of(rng.choice(data, len(data))) for _ in range(1000)]
    low, high = np.quantile(again, [0.025, 0.975])
    return f"{100 * of(data):.1f} ({100 * low:.1f} to {100 * high:.1f})"


def main() -> None:
    """Print a row a scheduler."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--later", type=float, default=0.0, help="part of the jobs")
    parser.add_argument("--errors", default="0,0,0", help="standard deviations of logarithms")
    parser.add_argument("--pace", choices=["yarn", "prompt"], default="prompt")
    parser.add_argument("--schedulers", default="fifo,capacity,drf")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    rng, rows = np.random.default_rng(0), []
    for scheduler in args.schedulers.split(","):
        errors = [float(one) for one in args.errors.split(",")]
        run = partial(outcomes, scheduler, args.later, errors, args.pace, args.draws)
        if args.workers > 1:
            with WorkerPool(args.workers) as pool:
                runs = list(pool.map(run, range(args.seeds)))
        else:
            runs = [run(seed) for seed in range(args.seeds)]
        for waits in (True, False):
            each = [[one for one in found if one.waits is waits] for found in runs]
            each = [found for found in each if found]
            if not each:
                continue
            medians = [float(np.median([one.error for one in found])) for found in each]
            inside = [float(np.mean([one.inside for one in found])) for found in each]
            every = [one for found in each for one in found]
            rows.append(
                (
                    scheduler,
                    "waiting" if waits else "running",
                    len(every),
                    interval(medians, "mean", rng),
                    interval(inside, "mean", rng),
                    round(100 * float(np.median([one.bias for one in every])), 1),
                    round(float(np.median([one.start_error_s for one in every])), 2),
                )
            )
            print(*rows[-1], file=sys.stderr, flush=True)
    table(
        (
            "scheduler",
            "jobs",
            "predictions",
            "median error of the end, % of what was left",
            "inside the 90 % band, %",
            "median bias %",
            "start off s",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
