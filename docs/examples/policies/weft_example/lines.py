"""An importer: one job a line, `name tasks duration_s vcores memory_mb`."""

from collections.abc import Sequence
from pathlib import Path

from weft.model.job import Job, Stage
from weft.workloads.imported import Imported

FORMAT = "lines"
COLUMNS = 5


def read(sources: Sequence[Path], *, every: int = 1) -> Imported:
    """Read every `every`-th line; what is no job is counted as dropped."""
    result = Imported()
    for path in sources:
        for line in path.read_text().splitlines()[::every]:
            words = line.split()
            if len(words) != COLUMNS:
                result.dropped["lines without five columns"] += 1
                continue
            name, tasks, duration_s, vcores, memory_mb = words
            demand = {"vcores": float(vcores), "memory_mb": float(memory_mb)}
            result.jobs.append(Job(name, (Stage("all", int(tasks), float(duration_s), demand),)))
    return result
