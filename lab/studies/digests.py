"""The decisions of today, as digests: what a change of the cores that claims none is held to.

`tests/parity/digests.json` keeps them. A test compares the quick ones, `make native-test` all of
them in both builds. After a change that is meant to decide otherwise:
`python -m lab.studies.digests --write`, and the commit says why.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping

from lab.bench.sim import NODE, stream
from lab.native import ROOT
from sim.cluster import Simulation
from sim.faults import random_faults
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.policies.presets import PRESETS, preset

KEPT = ROOT / "tests/parity/digests.json"
FAULTY = ("capacity", "graphene", "cobra", "carbyne")
# The long form has so many seeds of random faults.
SEEDS = 4

Digests = dict[str, str]


def quick() -> Digests:
    """Return digests of every preset in both paces on a small workload, a few under faults."""
    found = dict(_runs(PRESETS, tasks=120, stages=3, per_stage=8, gap_s=4.0, nodes=3))
    for seed in range(2):
        found |= dict(_faulty(seed, FAULTY, tasks=72, stages=3, per_stage=6, gap_s=4.0, nodes=3))
    return found


def long() -> Digests:
    """Return digests of more tasks than nodes hold, and of every preset under more faults."""
    found = dict(_runs(PRESETS, tasks=1_000, stages=5, per_stage=20, gap_s=2.0, nodes=15))
    for seed in range(SEEDS):
        found |= dict(
            _faulty(seed, FAULTY[:3], tasks=600, stages=5, per_stage=20, gap_s=2.0, nodes=15)
        )
    return found | dict(
        _faulty(SEEDS, PRESETS, tasks=120, stages=3, per_stage=8, gap_s=4.0, nodes=3)
    )


def _runs(
    names: Mapping[str, object], tasks: int, stages: int, per_stage: int, gap_s: float, nodes: int
) -> Iterator[tuple[str, str]]:
    jobs, cluster = stream(tasks, stages, per_stage, gap_s), cluster_from_text(f"{nodes}x{NODE}")
    for name in names:
        for prompt in (False, True):
            settings = SimSettings(scheduler=preset(name), prompt=prompt)
            done = Simulation(cluster, jobs, settings).run()
            yield f"{name}, {_pace(prompt)}, {tasks} tasks", done.digest()


def _faulty(
    seed: int,
    names: Mapping[str, object] | tuple[str, ...],
    tasks: int,
    stages: int,
    per_stage: int,
    gap_s: float,
    nodes: int,
) -> Iterator[tuple[str, str]]:
    jobs, cluster = stream(tasks, stages, per_stage, gap_s), cluster_from_text(f"{nodes}x{NODE}")
    faults = random_faults(seed, [node.node_id for node in cluster.nodes], len(jobs), 100.0)
    for name in names:
        for prompt in (False, True):
            settings = SimSettings(
                scheduler=preset(name),
                prompt=prompt,
                seed=seed,
                faults=faults,
                check_every=50,
                checks=True,
            )
            done = Simulation(cluster, jobs, settings).run()
            yield f"{name}, {_pace(prompt)}, {tasks} tasks, faults {seed}", done.digest()


def _pace(prompt: bool) -> str:
    return "prompt" if prompt else "yarn"


def kept() -> dict[str, Digests]:
    """Return what was decided when the file was written."""
    found: dict[str, Digests] = json.loads(KEPT.read_text())
    return found


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description="Digests of the decisions of every preset.")
    parser.add_argument("--write", action="store_true", help="keep those of this code")
    parser.add_argument("--quick", action="store_true", help="compare the quick ones only")
    chosen = parser.parse_args()
    found = {"quick": quick()} | ({} if chosen.quick and not chosen.write else {"long": long()})
    if chosen.write:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    before = kept()
    wrong = [
        f"{form}: {run}"
        for form, runs in found.items()
        for run in runs
        if runs[run] != before[form].get(run)
    ]
    print(*wrong, f"{sum(map(len, found.values()))} runs, {len(wrong)} differ", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
