"""Why a job failed: what its master said, the tasks that failed and the end of what they wrote."""

from collections.abc import Sequence

import click

from weft.client.api import Client
from weft.client.text import safe
from weft.model.errors import WeftError
from weft.model.ids import format_app
from weft.protocol.messages import TASK_FAULTS
from weft.protocol.requests import ApplicationReport, ContainerReport

JOBS_SHOWN, LINES = 3, 10
BAD = tuple(outcome.name for outcome in TASK_FAULTS)


def say_why(client: Client, failed: Sequence[ApplicationReport]) -> None:
    """Say on stderr why applications failed; a log that is not available is no reason to stop."""
    for report in failed[:JOBS_SHOWN]:
        app = format_app(report.cluster_ts, report.app_id)
        why = safe(report.diagnostics) or report.final_status
        click.echo(f"{safe(report.name)} ({app}): {why}", err=True)
        try:
            bad = [r for r in client.containers(report.app_id) if r.stage and r.state in BAD]
        except WeftError:
            bad = []
        # The newest is the first.
        if bad:
            _say_task(client, bad[0], len(bad))
    if len(failed) > JOBS_SHOWN:
        click.echo(f"and {len(failed) - JOBS_SHOWN} more: weft app APP says why", err=True)


def _say_task(client: Client, task: ContainerReport, count: int) -> None:
    name = f"{safe(task.stage)}[{task.index}] attempt {task.attempt}"
    told = getattr(task, "message", "")
    text = f"{name} on {safe(task.node_id)}: {task.state}" + (f", {safe(told)}" if told else "")
    more = f"; {count - 1} more attempts failed" if count > 1 else ""
    click.echo(f"  {text}{more}", err=True)
    try:
        pieces = client.read_log(task, "stderr")
    except WeftError:
        return
    lines = [line for line in pieces.decode("utf-8", "replace").splitlines() if line.strip()]
    if lines:
        click.echo("  the last lines of its stderr:", err=True)
    for line in lines[-LINES:]:
        click.echo(f"  | {safe(line)}", err=True)
