"""A run for Perfetto (ui.perfetto.dev): the JSON trace format, a process a node, a slice a task.

A node's slices lie in as many lanes as tasks ran there at once, since slices of one lane may only
nest. Times are in microseconds of the run's own clock.
"""

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from weft.model.errors import InputError, WeftError

_US = 1_000_000


def check_trace(path: Path | str) -> None:
    """Raise InputError for a file that can never be written: said before a run, not after it."""
    target = Path(path)
    if not target.name or target.is_dir():
        raise InputError("--trace", f"{target} is a folder, not a file")
    if target.exists() and not target.is_file():
        # A device or a pipe would be replaced by a file.
        raise InputError("--trace", f"{target} is no regular file")
    if not target.parent.is_dir():
        raise InputError("--trace", f"{target}: there is no folder {target.parent}")


def write_trace(
    path: Path | str, tasks: Iterable[Sequence[Any]], jobs: Mapping[int, str] | None = None
) -> int:
    """Write the tasks of a run, rows as in `tasks.csv`; returns the number of slices.

    `jobs` names the jobs. The file appears whole or not at all; raises WeftError naming it.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            count = _write(file, tasks, jobs or {})
        partial.replace(target)
    except OSError as error:
        raise WeftError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return count


def _write(file: TextIO, tasks: Iterable[Sequence[Any]], jobs: Mapping[int, str]) -> int:
    by_node: dict[str, list[Sequence[Any]]] = {}
    for row in tasks:
        by_node.setdefault(str(row[4]), []).append(row)
    file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
    count, first = 0, True
    for number, (node, rows) in enumerate(by_node.items(), 1):
        named: dict[str, Any] = {"name": "process_name", "ph": "M", "pid": number}
        events: list[dict[str, Any]] = [named | {"args": {"name": node}}]
        rows.sort(key=lambda row: (float(row[7]), float(row[8])))
        free: list[int] = []
        busy_until_us: list[tuple[int, int]] = []
        lanes = 0
        for row in rows:
            begin, end = round(float(row[7]) * _US), round(float(row[8]) * _US)
            while busy_until_us and busy_until_us[0][0] <= begin:
                heapq.heappush(free, heapq.heappop(busy_until_us)[1])
            if free:
                lane = heapq.heappop(free)
            else:
                lanes += 1
                lane = lanes
            heapq.heappush(busy_until_us, (max(end, begin + 1), lane))
            events.append(_slice(row, number, lane, begin, end, jobs))
        count += len(rows)
        for event in events:
            file.write(("" if first else ",\n") + json.dumps(event, separators=(",", ":")))
            first = False
    file.write("\n]}\n")
    return count


def _slice(
    row: Sequence[Any], node: int, lane: int, begin: int, end: int, jobs: Mapping[int, str]
) -> dict[str, Any]:
    job, stage, index, attempt, _, container, ready_s, _, _, state = row
    args: dict[str, Any] = {
        "job": int(job),
        "job_name": jobs.get(int(job), ""),
        "stage": str(stage),
        "index": int(index),
        "attempt": int(attempt),
        "container": str(container),
        "state": str(state),
    }
    if ready_s not in ("", None):
        args["waited_s"] = round(float(row[7]) - float(ready_s), 6)
    return {
        "name": f"{stage}[{index}]",
        "cat": str(state),
        "ph": "X",
        "ts": begin,
        "dur": end - begin,
        "pid": node,
        "tid": node * 100_000 + lane,
        "args": args,
    }
