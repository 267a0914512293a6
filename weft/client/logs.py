"""Printing what the commands of an application wrote, from the node managers that ran them."""

import asyncio
import sys

from weft.client.api import Client
from weft.errors import InputError
from weft.ids import AppId
from weft.requests import ContainerReport


def print_logs(client: Client, app: AppId, stage: str, task: int | None, stream: str) -> None:
    """Print the logs of an application's containers, in order of stage, task and attempt.

    Raises InputError where no container matches.
    """
    found = [
        report
        for report in client.containers(app)
        if report.stage and (not stage or report.stage == stage) and task in (None, report.index)
    ]
    if not found:
        where = f"stage {stage!r}" if stage else "any stage"
        raise InputError("logs", f"no container of {where} is known for this application")
    found.sort(key=lambda r: (r.started_s, r.stage, r.index, r.attempt))
    streams = ("stdout", "stderr") if stream == "both" else (stream,)
    asyncio.run(_print_all(found, streams))


async def _print_all(reports: list[ContainerReport], streams: tuple[str, ...]) -> None:
    from weft.wire.client import read_log

    out = sys.stdout.buffer
    for report in reports:
        for stream in streams:
            title = f"==> {report.stage}[{report.index}] attempt {report.attempt} {stream} <==\n"
            printed = False
            chunks = read_log(report.node_address, report.node_id, report.container_id, stream)
            try:
                async for chunk in chunks:
                    if not printed:
                        out.write(title.encode())
                        printed = True
                    out.write(chunk)
            except InputError as error:
                if not printed:
                    print(f"{title.strip()} {error.problem}", file=sys.stderr)
    out.flush()
