"""How true is what follows a cut? Recorded runs are forked at several times and go on simulated.

`python -m lab.studies.fork TAPES...`; each argument is a folder that `weft demo --tape` filled.
With the durations that tasks had, jobs should end when they ended. Delays are drawn from those
before the cut, as `weft whatif --at` does, and then taken from the whole run, link by link and at
their time: what the first is off by more is what the machine could not do in time later, which
nobody can know at the cut. The last column is the same from the start, in a closed loop: the mean
completion time, simulated, against the recorded one.
"""

import argparse
from pathlib import Path
from statistics import fmean

from sim.replay import fork
from sim.replay import whatif as what
from sim.replay.rebuild import survey
from sim.replay.whatif import Jct
from weft.client.tables import table
from weft.runtime.tapefile import find_tapes

# Fractions of the time from the first arrival to the last end.
PLACES = (0.1, 0.3, 0.5, 0.7, 0.85)
SEEDS = 5


def errors(rows: list[Jct]) -> list[float]:
    """Return relative errors of completion times of the jobs that ended both times, %."""
    both = [row for row in rows if row.recorded_s > 0 and row.same_s >= 0]
    return [100.0 * (row.same_s - row.recorded_s) / row.recorded_s for row in both]


def study(folder: Path) -> list[tuple[object, ...]]:
    """Return rows of one recorded run, one for each time at which it was cut.

    A row has that time, the open jobs, the mean error, the bias, the mean error with the delays of
    then, and that of the closed loop.
    """
    tapes = find_tapes(folder)
    read = {role: [tape.rows for tape in tapes if tape.role == role] for role in ("rm", "am", "nm")}
    others = [*read["am"], *read["nm"]]
    whole = survey(read["rm"], others, float("inf"))
    seen = whole.seen
    made = [next(filter(None, (what.first_core(t()) for t in read[r])), None) for r in ("am", "nm")]
    assert seen.parts is not None
    same = what.settings_of(seen.parts, *made)
    first_s = min(arrival_s for _, arrival_s in seen.jobs.values())
    last_s = max(ended_s for _, ended_s in seen.ended.values())
    closed = [
        what.compare(seen, one, one, what.cluster_of(seen), seen.commands, whole.delays)
        for one in what.seeded(same, SEEDS)
    ]
    runs = what.mean_of(closed)
    loop = 100.0 * (fmean(row.same_s for row in runs) / fmean(row.recorded_s for row in runs) - 1)
    rows: list[tuple[object, ...]] = []
    for place in PLACES:
        at_s = first_s + place * (last_s - first_s)
        cut = survey(read["rm"], others, at_s)
        every = [*read["rm"], *others]
        found = errors(fork.compare(cut, every, same, None, None))
        known = errors(fork.compare(cut, every, same, None, None, whole.delays.timed(0.0)))
        bias = fmean(found) if found else 0.0
        rows.append((folder.name, at_s, len(found), _size(found), bias, _size(known), loop))
    return rows


def _size(found: list[float]) -> float:
    return fmean(map(abs, found)) if found else 0.0


def main() -> None:
    """Print a row a cut, and the mean over all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="TAPES")
    rows = [row for folder in parser.parse_args().folders for row in study(folder)]
    heads = (
        "run",
        "cut at s",
        "open jobs",
        "mean error %",
        "bias %",
        "delays of that run %",
        "closed loop %",
    )
    table(heads, rows)


if __name__ == "__main__":
    main()
