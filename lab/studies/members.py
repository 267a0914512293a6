"""What do members cost? Several managers behind a router against one manager of all their nodes.

Both have the same jobs. `completion`: by how much later jobs are done in the mean. `shares`: how
far queues are from what they are guaranteed of the whole while all want more, from a minute after
the work came on, and from a minute after a member lost half of its nodes. `make members` runs both.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np

from lab.studies.trials import interval
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.members import Members
from sim.process.command import quiet_collector
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.client.show import table
from weft.model.cluster import ClusterSpec, cluster_from_text
from weft.model.dag import Floats
from weft.model.job import Job, Stage
from weft.model.queues import QueueSpec
from weft.policies.presets import choose
from weft.policies.shares import SHARES_S
from weft.workloads.synth import generate

NODE = {"vcores": 16.0, "memory_mb": 65536.0}
GUARANTEES = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
# Each queue's work comes as so many jobs, of unlike sizes.
JOBS_PER_QUEUE, JOB_SIGMA = 8, 0.5
TASK_S = 10.0
# Half of a member's nodes go at `LOSS_S`; `WITHIN_S` after the work came, and after that, queues
# are to have what they are guaranteed, until the loss and until `END_S`.
LOSS_S, WITHIN_S, END_S = 150.0, 60.0, 300.0
# There is work for so much longer than is looked at.
WORK_FACTOR = 10.0
# What queues hold is the mean over so many seconds: tasks of a stage end together.
LOOK_S = 10


def completion(
    nodes: int, members: int, seed: int, jobs: int, load: float, kind: str, scheduler: str
) -> dict[str, float]:
    """Return the mean completion times of one seed's jobs, s, under one manager and several."""
    drawn = list(generate(kind, jobs, np.random.default_rng([seed, 1]), interarrival_s=1.0))
    # Of the resources cores are wanted most.
    every_s = sum(job.work_s({"vcores": NODE["vcores"] * nodes}) for job in drawn) / jobs / load
    came = [_of_two(replace(job, arrival_s=job.arrival_s * every_s)) for job in drawn]
    found = {}
    for name, count in (("one", 1), ("members", members)):
        recorder = _run(_cluster(nodes), came, SimSettings(choose(scheduler), seed=seed), count)
        assert all(row.end == "SUCCEEDED" for row in recorder.jobs)
        took_s = np.array([row.finish_s - row.job.arrival_s for row in recorder.jobs])
        found[f"{name}_mean_s"] = float(took_s.mean())
        found[f"{name}_p95_s"] = float(np.percentile(took_s, 95))
    return found


def shares(
    nodes: int, members: int, seed: int, scheduler: str, shares_s: float
) -> dict[str, float]:
    """Return how far the farthest queue is from its guarantee, in points of the whole cluster.

    As a mean over the time looked at, and at the worst moment of it; before and after the loss.
    """
    queues = QueueSpec("root", children=tuple(QueueSpec(n, part) for n, part in GUARANTEES.items()))
    cluster = replace(_cluster(nodes), queues=queues)
    lost = nodes // members // 2
    gone = tuple(spec.node_id for spec in cluster.nodes[:lost])
    settings = SimSettings(
        choose(scheduler),
        seed=seed,
        faults=Faults((Fault(LOSS_S, FaultKind.CRASH, gone),)),
        manager={"node_expiry_s": 10.0},
        until_s=END_S,
    )
    recorder = _run(cluster, _backlog(nodes, seed), settings, members, shares_s)
    at_s, held = _held(recorder)
    found = {}
    for when, begins_s, ends_s in (("", WITHIN_S, LOSS_S), ("lost_", LOSS_S + WITHIN_S, END_S)):
        # What runs at the end is not recorded.
        looks = (at_s >= begins_s + LOOK_S) & (at_s < ends_s - 3 * TASK_S)
        part = held[looks] / held[looks].sum(axis=1, keepdims=True)
        apart = np.abs(part - np.array(list(GUARANTEES.values()))) * 100
        found[f"{when}mean"] = float(np.abs(apart).mean(axis=0).max())
        found[f"{when}worst"] = float(apart.max())
    return found


def _of_two(job: Job) -> Job:
    """Return a job that wants nothing but cores and memory."""
    stages = (
        replace(stage, demand={name: stage.demand[name] for name in NODE}) for stage in job.stages
    )
    return replace(job, stages=tuple(stages))


def _cluster(nodes: int) -> ClusterSpec:
    return cluster_from_text(f"{nodes}x16vcores,65536memory_mb")


def _run(
    cluster: ClusterSpec,
    jobs: Sequence[Job],
    settings: SimSettings,
    count: int,
    shares_s: float = SHARES_S,
) -> Recorder:
    recorder = Recorder()
    with quiet_collector():
        if count == 1:
            Simulation(cluster, jobs, settings, recorder).run()
        else:
            Members(cluster, jobs, settings, recorder, count, shares_s).run()
    return recorder


def _backlog(nodes: int, seed: int) -> list[Job]:
    """Return more work of every queue than is done by the end; it comes within 5 s."""
    rng = np.random.default_rng([seed, 2])
    need = {"vcores": 1.0, "memory_mb": 4096.0}
    # A queue may have all of a member, so each needs more than its part.
    tasks = nodes * NODE["vcores"] * END_S / TASK_S * WORK_FACTOR / len(GUARANTEES)
    jobs = []
    for queue in GUARANTEES:
        sizes = rng.lognormal(0.0, JOB_SIGMA, JOBS_PER_QUEUE)
        for at, size in enumerate(sizes / sizes.sum()):
            stage = Stage(
                "s", max(1, int(size * tasks)), float(rng.uniform(0.5, 1.5) * TASK_S), need
            )
            arrival_s = float(rng.random() * 5)
            jobs.append(Job(f"{queue}{at}", (stage,), queue=queue, arrival_s=arrival_s))
    return jobs


def _held(recorder: Recorder) -> tuple[Floats, Floats]:
    """Return times and how many tasks of each queue ran in the `LOOK_S` before (times, queues)."""
    columns, names = recorder.columns(), list(GUARANTEES)
    queue_of = {row.app: names.index(row.job.queue) for row in recorder.jobs if row.app}
    queue = np.array([queue_of[app] for app in columns.app.tolist()])
    at_s = np.arange(0.0, END_S)
    held = np.zeros((len(at_s), len(names)))
    for place in range(len(names)):
        mine = queue == place
        begun = np.searchsorted(np.sort(columns.start_s[mine]), at_s, side="right")
        ended = np.searchsorted(np.sort(columns.end_s[mine]), at_s, side="right")
        held[:, place] = begun - ended
    sums = np.cumsum(np.vstack([np.zeros(len(names)), held]), axis=0)
    return at_s[LOOK_S - 1 :], (sums[LOOK_S:] - sums[:-LOOK_S]) / LOOK_S


def _told(rows: Sequence[Mapping[str, float]], name: str, base: str = "") -> str:
    """Return a number over the seeds with its 95 % interval; in percent over a base."""
    values = [row[name] if not base else 100 * (row[name] / row[base] - 1) for row in rows]
    mean, half = interval(values)
    # One seed has no interval.
    width = "" if math.isnan(half) else f" ± {half:.2f}"
    return f"{mean:+.2f}{width} %" if base else f"{mean:.2f}{width}"


def _seeds(seeds: int, run: Any, as_json: bool) -> Iterator[dict[str, float]]:
    for seed in range(1, seeds + 1):
        row = run(seed)
        if as_json:
            click.echo(json.dumps({"seed": seed, **row}))
        yield row


@click.group()
def main() -> None:
    """Say what members cost, simulated."""


_nodes = click.option("--nodes", default=1000, show_default=True, help="Of the whole cluster.")
_members = click.option("--members", default=5, show_default=True)
_count = click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
_scheduler = click.option("--scheduler", default="capacity", show_default=True)
_json = click.option("--json", "as_json", is_flag=True, help="Print a line for each seed.")


@main.command("completion")
@_nodes
@_members
@_count
@_scheduler
@_json
@click.option("--jobs", default=1000, show_default=True)
@click.option("--load", default=0.8, show_default=True, help="Of the whole cluster.")
@click.option("--kind", default="tpch_like", show_default=True, help="As `weft generate` has it.")
def main_completion(
    nodes: int,
    members: int,
    seeds: int,
    scheduler: str,
    as_json: bool,
    jobs: int,
    load: float,
    kind: str,
) -> None:
    """Compare the mean completion time."""

    def run(seed: int) -> dict[str, float]:
        return completion(nodes, members, seed, jobs, load, kind, scheduler)

    rows = list(_seeds(seeds, run, as_json))
    table(
        ("one manager, s", f"{members} members, s", "mean", "95th percentile"),
        [
            (
                _told(rows, "one_mean_s"),
                _told(rows, "members_mean_s"),
                _told(rows, "members_mean_s", "one_mean_s"),
                _told(rows, "members_p95_s", "one_p95_s"),
            )
        ],
    )


@main.command("shares")
@_nodes
@_members
@_count
@_scheduler
@_json
@click.option("--fixed", is_flag=True, help="Guarantees do not move.")
def main_shares(
    nodes: int, members: int, seeds: int, scheduler: str, as_json: bool, fixed: bool
) -> None:
    """Say how far queues are from their guarantees, in points of the whole cluster."""
    every_s = math.inf if fixed else SHARES_S

    def run(seed: int) -> dict[str, float]:
        return shares(nodes, members, seed, scheduler, every_s)

    rows = list(_seeds(seeds, run, as_json))
    names = ("mean", "worst", "lost_mean", "lost_worst")
    heads = ("60 s after", "at worst", "60 s after the loss", "at worst then")
    table(heads, [[_told(rows, name) for name in names]])


if __name__ == "__main__":
    main()
