"""Alibaba's tables of instances, drawn: `python -m tools.alibaba_instances PART.csv.gz FOLDER`.

Of the published tables only parts by task are handed on (`hour_slice.csv.gz`). This writes
`batch_task.csv` and `batch_instance.csv` of such a part, to try how `weft analyse` does at size.
Tasks, numbers of instances, plans and durations are the trace's. The rest is drawn: an instance
starts 5 s on average (exponential) after its task could, lasts as long as its task (coefficient of
variation 0.3), is on a random machine of 4,023, and uses half of what is planned.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from weft.model.errors import InputError
from weft.model.job import Job
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

MACHINES = 4023
# The importer reads a percent of the largest machine as so much memory.
MEMORY_MB_PER_PERCENT = 3932.16
DELAY_S, VARIATION, USED = 5.0, 0.3, 0.5
Row = tuple[str | int | float, ...]


def drawn(job: Job, rng: np.random.Generator) -> Iterator[tuple[Row, list[Row]]]:
    """Yield by task of a job its row of `batch_task`, and those of its instances."""
    ends: dict[str, int] = {}
    for place in job.topological_order():
        stage = job.stages[place]
        ready_s = max((ends[edge.stage] for edge in stage.parents), default=round(job.arrival_s))
        count = stage.tasks
        starts = ready_s + np.round(rng.exponential(DELAY_S, count)).astype(np.int64)
        varied = rng.normal(stage.duration_s, VARIATION * stage.duration_s, count)
        stops = starts + np.maximum(0, np.round(varied)).astype(np.int64)
        cpu, memory = (
            100.0 * stage.demand.get("vcores", 0.0),
            stage.demand.get("memory_mb", 0.0) / MEMORY_MB_PER_PERCENT,
        )
        name = stage.name
        instances: list[Row] = [
            (
                f"ins_{n}",
                name,
                job.name,
                "1",
                "Terminated",
                start,
                stop,
                f"m_{machine}",
                1,
                1,
                cpu * USED,
                cpu,
                memory * USED,
                memory,
            )
            for n, (start, stop, machine) in enumerate(
                zip(
                    starts.tolist(),
                    stops.tolist(),
                    rng.integers(1, MACHINES + 1, count).tolist(),
                    strict=True,
                )
            )
        ]
        ends[name] = int(stops.max())
        yield (
            (name, count, job.name, "1", "Terminated", ready_s, ends[name], cpu, memory),
            instances,
        )


def main(words: Sequence[str]) -> int:
    """Write both tables; 2 for wrong words or a part that cannot be read."""
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, rng = Path(words[1]), np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with (
        (folder / "batch_task.csv").open("w", newline="") as tasks,
        (folder / "batch_instance.csv").open("w", newline="") as instances,
    ):
        by_task, by_instance = csv.writer(tasks), csv.writer(instances)
        try:
            for job in import_jobs("alibaba2018", [Path(words[0])], {}, Imported()):
                for row, rows in drawn(job, rng):
                    by_task.writerow(row)
                    by_instance.writerows(rows)
                    count += len(rows)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
    print(f"{count} instances in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
