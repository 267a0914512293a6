"""Train a matcher in the environment and judge it: `python -m lab.learning.train --out FILE`.

The cross-entropy method: draw networks around a mean, let each schedule the same episodes, move
mean and spread to the best of them. Two minutes of two cores are enough to beat FIFO by far.
`python -m lab.learning.train --judge policy.json` compares it with Weft's matchers on episodes and
on kinds of jobs that it has not seen.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from lab.functions import cluster_of
from lab.learning.gym import CLUSTER, Scheduling, quietly, synthetic
from lab.learning.learned import Network, load, save
from lab.studies.trials import interval
from lab.worker_pool import WorkerPool
from sim.cluster import Simulation
from sim.results import jct_s
from weft.model.dag import Floats
from weft.model.job import Job
from weft.policies.presets import choose, with_options

# Networks drawn a round, the best that are followed, and the episodes that each plays.
DRAWN, BEST, EPISODES = 24, 6, 3
FIRST_DEVIATION = 0.5
MATCHERS = ("fifo", "fair", "drf", "sjf", "tetris", "graphene")
# Seeds from here on are for judging.
JUDGING_SEEDS_FROM = 1_000_000
KINDS = {"mapreduce": (6.0, 4), "tpch_like": (12.0, 8), "tpcds_like": (12.0, 8)}


def episode(parameters: Floats, seed: int) -> float:
    """Let a network schedule one episode of training; returns the mean job completion time, s."""
    env, network = Scheduling(), Network(parameters)
    seen, told = env.reset(seed=seed)
    ended = False
    while not ended:
        may = seen["mask"] > 0
        seen, _, over, cut, told = env.step(network.choose(seen["candidates"], may))
        ended = over or cut
    return float(told["mean_jct_s"])


def train(
    minutes: float, seed: int, processes: int, say: bool = True
) -> tuple[Network, list[float]]:
    """Return the mean network after as many rounds as there is time for, and its JCTs by round.

    A round's figure is the mean over its best networks, over that of the first network of all
    (which knows nothing) on the same episodes.
    """
    rng = np.random.default_rng(seed)
    mean, spread = np.zeros(Network.size()), np.full(Network.size(), FIRST_DEVIATION)
    told: list[float] = []
    until = time.monotonic() + 60 * minutes
    with WorkerPool(processes) as pool:
        while time.monotonic() < until:
            drawn = mean + spread * rng.standard_normal((DRAWN, len(mean)))
            drawn[0] = mean
            seeds = rng.integers(JUDGING_SEEDS_FROM, size=EPISODES).tolist()
            runs = [(one, each) for one in [np.zeros_like(mean), *drawn] for each in seeds]
            times = np.array(list(pool.map(episode, *zip(*runs, strict=True)))).reshape(
                -1, EPISODES
            )
            ratio = np.exp(np.log(times[1:] / times[0]).mean(axis=1))
            best = drawn[np.argsort(ratio, kind="stable")[:BEST]]
            mean, spread = best.mean(axis=0), 0.7 * best.std(axis=0) + 0.3 * spread
            told.append(float(np.sort(ratio)[:BEST].mean()))
            if say:
                print(f"round {len(told)}: {told[-1]:.3f} of the untrained JCT", flush=True)
    return Network(mean), told


def judge(weights: Path, seeds: int) -> list[str]:
    """Return a Markdown table: mean JCT against FIFO's on the same unseen jobs, in %."""
    lines = ["| jobs | " + " | ".join((*MATCHERS, "learned")) + " |", "|---" * 8 + "|"]
    for kind, (interarrival_s, smaller) in KINDS.items():
        rows: dict[str, list[float]] = {name: [] for name in (*MATCHERS, "learned")}
        for number in range(seeds):
            rng = np.random.default_rng(JUDGING_SEEDS_FROM + number)
            jobs = synthetic(rng, kind=kind, interarrival_s=interarrival_s, smaller=smaller)
            for name, row in rows.items():
                row.append(_mean_jct_s(jobs, name, weights))
        cells = [_against(row, rows["fifo"]) for row in rows.values()]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return lines


def _mean_jct_s(jobs: list[Job], matcher: str, weights: Path) -> float:
    """Simulate jobs as the environment does, with one of Weft's matchers."""
    preset = choose(matcher=matcher)
    if matcher == "learned":
        preset = with_options(preset, {"matcher.weights": str(weights)})
    run = Simulation(cluster_of(CLUSTER), jobs, quietly(preset))
    return float(np.mean([jct_s(row) for row in run.run().jobs]))


def _against(row: list[float], base: list[float]) -> str:
    change = 100 * (np.array(row) / np.array(base) - 1)
    mean, half = interval(change.tolist())
    return f"{mean:+.0f} ± {half:.0f}" if row is not base else "0"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m lab.learning.train", description=__doc__)
    parser.add_argument("--out", type=Path, help="train, and write the policy here")
    parser.add_argument("--minutes", type=float, default=4.0, help="of training (4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--judge", type=Path, help="compare this policy with Weft's matchers")
    parser.add_argument(
        "--seeds", type=int, default=10, help="episodes of each kind to judge by (10)"
    )
    given = parser.parse_args()
    if given.out is None and given.judge is None:
        parser.error("give --out FILE, --judge FILE or both")
    if given.out is not None:
        network, told = train(given.minutes, given.seed, given.processes)
        save(given.out, network, {"rounds": len(told), "seed": given.seed, "ratio": told[-1]})
        load(given.out)
    if given.judge is not None:
        print("\n".join(judge(given.judge, given.seeds)))


if __name__ == "__main__":
    main()
