"""`python -m sim SEED...`: repeat walks through faults with every checker on.

`python -m sim gangs FIRST LAST`: walks through gangs, from one seed up to (not with) another.
"""

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from sim.process.gang_walk import gang_walk
from sim.process.walk import SCHEDULERS, walk


def main(arguments: list[str]) -> None:
    """Run each seed and print the results; the first broken rule ends it with its trace."""
    if arguments[:1] == ["gangs"]:
        gangs(int(arguments[1]), int(arguments[2]))
        return
    for text in arguments:
        seed = int(text)
        simulation = walk(seed)
        scheduler = SCHEDULERS[seed % len(SCHEDULERS)]
        print(f"seed {seed}: {scheduler}, {simulation.engine.events} events, no rule broken")


def gangs(first: int, last: int) -> None:
    """Run walks through gangs on two processes; exits with 1 when one broke a rule."""
    seeds = range(first, last)
    total: Counter[str] = Counter()
    with ProcessPoolExecutor(2) as pool:
        for seed, (counts, problem) in zip(seeds, pool.map(_gangs, seeds), strict=True):
            total.update(counts)
            if problem:
                total["broken"] += 1
                print(f"seed {seed}: {problem}", flush=True)
    print(", ".join(f"{count:,} {what}" for what, count in sorted(total.items())))
    sys.exit(1 if total["broken"] else 0)


def _gangs(seed: int) -> tuple[dict[str, int], str]:
    try:
        rows = gang_walk(seed).recorder.jobs
    except Exception as error:
        # Report the error with its seed, and go on with the other seeds.
        return {"walks": 1}, f"{type(error).__name__}: {error}"
    refused = sum(row.state == "REFUSED" for row in rows)
    whole = sum(stage.gang for row in rows if row.state == "FINISHED" for stage in row.job.stages)
    return {
        "walks": 1,
        "jobs": len(rows),
        "jobs refused": refused,
        "gangs started whole": whole,
    }, ""


if __name__ == "__main__":
    main(sys.argv[1:])
