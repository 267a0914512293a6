"""Printing what the commands of an application wrote, from the node managers that ran them."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from weft.client.api import ENDED, Client
from weft.model.errors import InputError, WeftError
from weft.model.ids import AppId, ContainerId, format_container
from weft.protocol.messages import EMULATED
from weft.protocol.requests import ContainerReport

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which logs: of one stage (empty: all) and task, which streams, the last so many lines."""

    stage: str = ""
    task: int | None = None
    streams: tuple[str, ...] = ("stdout", "stderr")
    tail: int | None = None

    def holds(self, report: ContainerReport) -> bool:
        """Return whether a container's logs are wanted."""
        if not report.stage or (self.stage and report.stage != self.stage):
            return False
        return self.task is None or report.index == self.task


def print_logs(client: Client, app: AppId, wanted: Wanted) -> None:
    """Print the logs of an application's containers, in order of their start.

    Raises InputError where no container matches.
    """
    found = _found(client, app, wanted)
    if not found:
        raise InputError("logs", _unknown(client, app, wanted))
    out = sys.stdout.buffer
    unwritten: list[str] = []
    wrote = False
    for report in found:
        for stream in wanted.streams:
            title = _title(client, report, stream)
            try:
                data = client.read_log(report, stream)
            except InputError as error:
                unwritten.append(f"{title} {error.problem}")
                continue
            wrote = True
            data = last_lines(data, wanted.tail)
            if data:
                out.write(f"{title}\n".encode() + data)
                if not data.endswith(b"\n"):
                    out.write(b"\n")
    out.flush()
    if unwritten and all(line.endswith(EMULATED) for line in unwritten):
        print(f"its tasks are {EMULATED}", file=sys.stderr)
        return
    if unwritten and not wrote:
        print(
            f"{len(unwritten)} logs cannot be read, such as: {unwritten[0]}\n"
            "logs go --log-retain-s after the end",
            file=sys.stderr,
        )
        return
    for line in unwritten:
        print(line, file=sys.stderr)


def follow_logs(client: Client, app: AppId, wanted: Wanted) -> None:
    """Print logs as they are written, until the application has ended."""
    read_bytes: dict[tuple[ContainerId, str], int] = {}
    shown = ""
    out = sys.stdout.buffer
    over = False
    while True:
        for report in _found(client, app, wanted):
            for stream in wanted.streams:
                key = (report.container_id, stream)
                try:
                    data, after = client.read_on(report, stream, read_bytes.get(key, 0))
                except WeftError:
                    # The log is not written yet, or its node is gone.
                    continue
                first = key not in read_bytes
                read_bytes[key] = after
                if first:
                    data = last_lines(data, wanted.tail)
                if not data:
                    continue
                title = _title(client, report, stream)
                if title != shown:
                    out.write(f"{title}\n".encode())
                    shown = title
                out.write(data)
        out.flush()
        if over:
            return
        # What was written until the end is read once more.
        over = client.application(app).state in ENDED
        if not over:
            time.sleep(POLL_S)


def last_lines(data: bytes, count: int | None) -> bytes:
    """Return the last `count` lines; None: all."""
    if count is None:
        return data
    lines: Sequence[bytes] = data.splitlines(keepends=True)
    return b"".join(lines[len(lines) - min(count, len(lines)) :])


def _unknown(client: Client, app: AppId, wanted: Wanted) -> str:
    """Return which of what is wanted is not there."""
    counts = {stage.name: stage.tasks for stage in client.application(app).stages}
    if wanted.stage and wanted.stage not in counts:
        return f"unknown stage {wanted.stage!r}; known: {', '.join(counts)}"
    most = counts[wanted.stage] if wanted.stage else max(counts.values(), default=0)
    if wanted.task is not None and wanted.task >= most > 0:
        of = f"stage {wanted.stage!r}" if wanted.stage else "its largest stage"
        tasks = f"tasks 0 to {most - 1}" if most > 1 else "task 0"
        return f"no task {wanted.task}: {of} has {tasks}"
    where = f"stage {wanted.stage!r}" if wanted.stage else "any stage"
    if wanted.task is None:
        return f"no container of {where} is known for this application"
    return (
        f"no container of task {wanted.task} of {where} is known for this application: it has not "
        "begun, or less than a heartbeat ago"
    )


def _found(client: Client, app: AppId, wanted: Wanted) -> list[ContainerReport]:
    found = [report for report in client.containers(app) if wanted.holds(report)]
    return sorted(found, key=lambda r: (r.started_s, r.stage, r.index, r.attempt))


def _title(client: Client, report: ContainerReport, stream: str) -> str:
    """Return the line above a log; a running one is named by its container until it is reported."""
    if report.index >= 0:
        return f"==> {report.stage}[{report.index}] attempt {report.attempt} {stream} <=="
    name = format_container(client.cluster_ts, report.container_id)
    return f"==> {report.stage}[running in {name}] {stream} <=="
