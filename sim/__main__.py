"""`python -m sim SEED...`: repeat walks through faults with every checker on."""

import sys

from sim.walk import SCHEDULERS, walk


def main(seeds: list[str]) -> None:
    """Run each seed and say what came out; the first broken rule ends it with its trace."""
    for text in seeds:
        seed = int(text)
        simulation = walk(seed)
        scheduler = SCHEDULERS[seed % len(SCHEDULERS)]
        print(f"seed {seed}: {scheduler}, {simulation.engine.events} events, no rule broken")


if __name__ == "__main__":
    main(sys.argv[1:])
