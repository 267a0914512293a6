"""`python -m testkit.meetings`: search all pairs, or `--triples`; or run one row, `NAME=VALUE ...`.

What breaks a promise is shrunk and printed with the command that shows it again.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from testkit.meetings.drawn import draw
from testkit.meetings.features import Row, row_of, rows, text_of
from testkit.meetings.search import Finding, fewer_jobs, problems, search, shrink


def main() -> int:
    """Run what is asked for; 1 where a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m testkit.meetings", description=__doc__)
    parser.add_argument("row", nargs="*", help="One row: what is not plain.")
    parser.add_argument("--triples", action="store_true", help="Every three features meet.")
    parser.add_argument("--faults", action="store_true", help="Rows with faults instead.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--no-shrink", action="store_true")
    given = parser.parse_args()
    if given.row or not (given.triples or given.faults or len(sys.argv) <= 1 or given.seed == 0):
        return _one(row_of(given.row), given.seed)
    return _all(given)


def _one(row: Row, seed: int) -> int:
    meeting = draw(row, seed)
    found = list(problems(meeting))
    for problem in found:
        print(problem)
    if found:
        for job in fewer_jobs(meeting, Finding(row, seed, found[0]).kind).jobs:
            print(f"  {job.name} {job.queue} {job.user} priority {job.priority} {job.arrival_s} s")
            for stage in job.stages:
                print(f"    {stage}"[:300])
    return int(bool(found))


def _all(given: argparse.Namespace) -> int:
    began_s = time.process_time()
    strength = 3 if given.triples else 2
    chosen = rows(strength, faults=given.faults)
    found: list[Finding] = []
    if given.processes > 1:
        with ProcessPoolExecutor(given.processes) as pool:
            batches = pool.map(_batch, chosen, range(given.seed, given.seed + len(chosen)))
            found = [one for batch in batches for one in batch]
    else:
        found = list(search(chosen, given.seed))
    kinds: dict[str, list[Finding]] = {}
    for one in found:
        kinds.setdefault(one.kind, []).append(one)
    for kind, ones in sorted(kinds.items()):
        small = min(ones, key=lambda one: len(text_of(one.row)))
        small = small if given.no_shrink else shrink(small)
        print(f"{len(ones)} x {kind}\n    {small.problem}\n    {small.command}", flush=True)
    took_s = time.process_time() - began_s
    print(f"{len(chosen)} rows, {len(found)} findings of {len(kinds)} kinds; {took_s:.0f} CPU s")
    return int(bool(found))


def _batch(row: Row, seed: int) -> list[Finding]:
    return list(search([row], seed))


if __name__ == "__main__":
    sys.exit(main())
