"""Submitting job files and following them with progress bars."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from weft.client.api import ENDED, Client
from weft.errors import WeftError
from weft.ids import AppId
from weft.job import Job
from weft.requests import ApplicationReport


def read_jobs(paths: Iterable[Path], queue: str = "") -> list[Job]:
    """Read every job of every file, or none: raises InputError for the first problem."""
    from weft.workloads.jobs_file import read_jobs as read

    jobs = [job for path in paths for job in read(path)]
    return [replace(job, queue=queue) for job in jobs] if queue else jobs


def submit_all(client: Client, jobs: Sequence[Job], replay: bool, time_scale: float) -> list[AppId]:
    """Submit jobs at once, or each at its `arrival_s` divided by `time_scale`, s from now.

    At once is all or nothing: when one is refused, those before it are killed again.
    """
    apps: list[AppId] = []
    if not replay:
        try:
            for job in jobs:
                apps.append(client.submit(job))
        except WeftError:
            for app in apps:
                client.kill(app, "submitted together with a job that was refused")
            raise
        return apps
    start = time.monotonic()
    for job in sorted(jobs, key=lambda job: job.arrival_s):
        time.sleep(max(0.0, job.arrival_s / time_scale - (time.monotonic() - start)))
        apps.append(client.submit(job))
    return apps


def wait_for(
    client: Client, apps: Sequence[AppId], quiet: bool = False, stages: bool = True
) -> list[ApplicationReport]:
    """Wait until every application ended, with a bar per job (and per running stage)."""
    if quiet:
        ended = client.wait(apps)
        return [ended[app] for app in apps]
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        return _wait_in_lines(client, apps, console)
    return _wait_with_bars(client, apps, console, stages)


def _wait_in_lines(
    client: Client, apps: Sequence[AppId], console: object
) -> list[ApplicationReport]:
    from rich.console import Console

    assert isinstance(console, Console)
    shown: dict[AppId, tuple[str, int]] = {}

    def progress(report: ApplicationReport) -> None:
        tenth = int(report.progress * 4)
        if shown.get(report.app_id) != (report.state, tenth):
            shown[report.app_id] = (report.state, tenth)
            console.print(
                f"{report.name:<12} {report.state:<9} {report.finished_tasks}/{report.tasks} tasks",
                highlight=False,
            )

    ended = client.wait(apps, progress)
    return [ended[app] for app in apps]


def _wait_with_bars(
    client: Client, apps: Sequence[AppId], console: object, stages: bool
) -> list[ApplicationReport]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    assert isinstance(console, Console)
    bars = Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console,
    )
    rows: dict[tuple[AppId, str], int] = {}

    def progress(report: ApplicationReport) -> None:
        show_bar(report.app_id, "", report.name, report.tasks, report.finished_tasks, report.state)
        ended = report.state in ENDED
        for stage in report.stages if stages else ():
            key = (report.app_id, stage.name)
            done = ended or stage.finished == stage.tasks
            if done and key in rows:
                bars.remove_task(rows.pop(key))  # type: ignore[arg-type]
            elif not done and (stage.running or key in rows):
                state = f"{stage.running} running"
                show_bar(*key, f"  {stage.name}", stage.tasks, stage.finished, state)

    def show_bar(app: AppId, stage: str, text: str, total: int, done: int, state: str) -> None:
        key = (app, stage)
        if key not in rows:
            rows[key] = bars.add_task(text, total=total, state=state)
        bars.update(rows[key], completed=done, state=state)  # type: ignore[arg-type]

    with bars:
        ended = client.wait(apps, progress)
    return [ended[app] for app in apps]
