"""Which lines of the cores does the fault search reach? Printed by file, the least reached first.

`make fuzz-coverage` (SEEDS=A:B). Of the pure code of the Resource Manager, the Node Manager and the
masters: processes, planners (which see no faults) and compiled kernels are left out. Beside it, how
often each rare path was taken (`weft.protocol.buggify`).
"""

import argparse
import io
import sys
from collections import Counter

import coverage

CORES = [
    "rm/*",
    "nm/*",
    "am/*",
    "weft/protocol/outbox.py",
    "weft/protocol/lifecycle.py",
    "weft/model/ids.py",
]
OMITTED = ["*/process/*", "*_kernels.py", "am/plan/*", "*/__main__.py", "*/__init__.py"]


def search(first: int, last: int) -> Counter[str]:
    """Run the seeds; returns how often each rare path was taken. Raises where a seed fails."""
    # The cores are imported under measurement, as a `def` is a line as well.
    from sim import fuzz
    from sim.cluster import Simulation
    from sim.swarm import case
    from weft.protocol.buggify import Buggify

    taken: Counter[str] = Counter()
    run = Simulation.run

    def counted(simulation: Simulation) -> object:
        try:
            return run(simulation)
        finally:
            chance = simulation.settings.node.buggify
            if isinstance(chance, Buggify):
                taken.update(chance.taken)

    Simulation.run = counted  # type: ignore[assignment]
    try:
        for seed in range(first, last):
            verdict = fuzz.run(case(seed))
            if verdict.problem:
                raise SystemExit(f"seed {seed}: {verdict.problem}")
    finally:
        Simulation.run = run  # type: ignore[method-assign]
    return taken


def main() -> int:
    """Measure and print; 1 where less than `--least` percent of the lines were reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:300", help="A:B")
    parser.add_argument("--least", type=float, default=0.0, help="Percent.")
    parser.add_argument("--missing", action="store_true", help="The lines, too.")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split(":"))
    measured = coverage.Coverage(data_file=None, include=CORES, omit=OMITTED, branch=False)
    measured.start()
    taken = search(first, last)
    measured.stop()
    text = io.StringIO()
    reached = measured.report(
        file=text, show_missing=given.missing, sort="cover", skip_empty=True, ignore_errors=True
    )
    print(text.getvalue())
    print(f"{last - first} seeds reach {reached:.1f} % of the cores' lines")
    for point, count in taken.most_common():
        print(f"{count:6} x {point}")
    return int(reached < given.least)


if __name__ == "__main__":
    sys.exit(main())
