"""Figures of other systems for the benches' cases, as docs/peers.jsonl keeps them.

Each was measured on some day, on some machine. So that it can stand beside what is measured now,
both are told in *loops* as well: the time of one task over that of one event of a bare simulator
(`lab.bench.calibration`) on the same machine.
"""

import json
from collections.abc import Collection
from pathlib import Path

from lab.bench.calibration import event_us
from lab.native import ROOT

PEERS = ROOT / "docs/peers.jsonl"
# The fastest round of the loop counts, as a busy machine only slows down.
ROUNDS = 3
Row = dict[str, object]


def loop_us() -> float:
    """Return the CPU time of an event of a bare simulator here and now, us."""
    return min(event_us() for _ in range(ROUNDS))


def in_loops(task_us: float, event_us: float) -> dict[str, object]:
    """Return the columns that compare a figure with those of other machines; both times in us."""
    return {"loop_us": round(event_us, 3), "loops": round(task_us / event_us, 1)}


def rows_of(cases: Collection[str], path: Path = PEERS) -> list[Row]:
    """Return what others do of some cases; none where no docs are, as beside an installed wheel."""
    if not path.is_file():
        return []
    kept = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
    return [
        {
            "case": one["case"],
            "peer": f"{one['peer']}: {one['what']}",
            "tasks_per_s": one["tasks_per_s"],
            **in_loops(1e6 / one["tasks_per_s"], one["loop_us"]),
            "measured": f"{one['date']}, {one['machine']}",
        }
        for one in kept
        if one["case"] in cases
    ]
