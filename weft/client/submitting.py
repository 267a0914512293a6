"""Submitting job files and following them with progress bars."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import TaskID

from weft.client.api import ENDED, Client, RefusedError
from weft.client.progress import bars, shortened
from weft.client.show import state_of
from weft.client.text import safe
from weft.model.errors import WeftError
from weft.model.ids import AppId
from weft.model.job import Job
from weft.protocol.requests import ApplicationReport


def read_jobs(paths: Iterable[Path], queue: str = "") -> list[Job]:
    """Read every job of every file, or none: raises InputError for the first problem."""
    return [job for _, job in read_named(paths, queue)]


def read_named(paths: Iterable[Path], queue: str = "") -> list[tuple[str, Job]]:
    """Return every job of every file with the file's name; InputError for the first problem."""
    from weft.workloads.jobs_file import read_jobs as read

    jobs = [(str(path), job) for path in paths for job in read(path)]
    return [(path, replace(job, queue=queue)) for path, job in jobs] if queue else jobs


def submit_all(
    client: Client,
    jobs: Sequence[Job],
    replay: bool,
    time_scale: float,
    files: Sequence[str] = (),
) -> list[AppId]:
    """Submit jobs at once, or each at its `arrival_s` divided by `time_scale`, s from now.

    At once is all or nothing: when one is refused, those before it are killed again. `files` are
    those of the jobs, for the error of one that is refused.
    """
    apps: list[AppId] = []
    if not replay:
        try:
            for number, job in enumerate(jobs):
                try:
                    apps.append(client.submit(job))
                except RefusedError as error:
                    refused = error.in_file(files[number] if files else "", job.name)
                    if apps:
                        names = ", ".join(each.name for each in jobs[:number])
                        refused = refused.after(f"submitted with it and killed again: {names}")
                    raise refused from None
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
    client: Client,
    apps: Sequence[AppId],
    quiet: bool = False,
    stages: bool = True,
    scale: float = 1.0,
) -> list[ApplicationReport]:
    """Wait until every application ended, with a bar per job (and per running stage).

    Bars' times are those of the cluster's clock, which runs `scale` times as fast as the wall's (0:
    that is not known), as all that is printed of the applications is.
    """
    if quiet:
        ended = client.wait(apps)
        return [ended[app] for app in apps]
    console = Console(stderr=True)
    if not console.is_terminal:
        return _wait_in_lines(client, apps, console)
    return _wait_with_bars(client, apps, console, stages, scale or 1.0)


def _wait_in_lines(
    client: Client, apps: Sequence[AppId], console: Console
) -> list[ApplicationReport]:
    shown: dict[AppId, tuple[str, int]] = {}

    def progress(report: ApplicationReport) -> None:
        quarter = int(report.progress * 4)
        if shown.get(report.app_id) != (report.state, quarter):
            shown[report.app_id] = (report.state, quarter)
            name, state = safe(report.name), state_of(report)
            done = f"{report.finished_tasks:,}/{report.tasks:,}"
            console.out(f"{name:<12} {state:<9} {done} tasks", highlight=False)

    ended = client.wait(apps, progress)
    return [ended[app] for app in apps]


def _wait_with_bars(
    client: Client, apps: Sequence[AppId], console: Console, stages: bool, scale: float
) -> list[ApplicationReport]:
    shown = bars(console, scale=scale)
    rows: dict[tuple[AppId, str], TaskID] = {}

    def progress(report: ApplicationReport) -> None:
        name = shortened(console, report.name)
        show_bar(report.app_id, "", name, report.tasks, report.finished_tasks, state_of(report))
        ended = report.state in ENDED
        for stage in report.stages if stages else ():
            key = (report.app_id, stage.name)
            done = ended or stage.finished == stage.tasks
            if done and key in rows:
                shown.remove_task(rows.pop(key))
            elif not done and (stage.running or key in rows):
                state = f"{stage.running:,} running"
                name = shortened(console, stage.name, "  ")
                show_bar(*key, name, stage.tasks, stage.finished, state)

    def show_bar(app: AppId, stage: str, text: str, total: int, done: int, state: str) -> None:
        key = (app, stage)
        if key not in rows:
            rows[key] = shown.add_task(text, total=total, state=state)
        shown.update(rows[key], completed=done, state=state)

    with shown:
        ended = client.wait(apps, progress)
    return [ended[app] for app in apps]
