"""Commands about applications: submit, kill, move, priority, apps, app, explain, logs."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.client import completing, show
from weft.client.api import DEFAULT_ADDRESS, Client
from weft.client.interrupts import InterruptedWait
from weft.client.naming import app_states, check_address, find_app, find_open, known_queue
from weft.client.text import missing_text
from weft.model.errors import WeftError
from weft.model.ids import AppId, format_app

IDS_SHOWN = 10
CONNECT_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT = "weft.connect_timeout_s"
F = TypeVar("F", bound=Callable[..., Any])


def address_option(command: F) -> F:
    """Add `--rm HOST:PORT`, also from the environment."""
    return click.option(
        "--rm",
        "address",
        default=DEFAULT_ADDRESS,
        envvar="WEFT_RM_ADDRESS",
        show_envvar=True,
        show_default=True,
        metavar="HOST:PORT",
        help="The Resource Manager.",
    )(command)


def manager_option(command: F) -> F:
    """Add `--rm HOST:PORT` and the files of TLS, also from the environment."""

    @functools.wraps(command)
    def identified(
        *args: Any,
        tls_ca: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        connect_timeout: float,
        **options: Any,
    ) -> Any:
        from weft.wire import tls

        tls.use(tls.read(tls_ca, tls_cert, tls_key))
        click.get_current_context().meta[_CONNECT_TIMEOUT] = connect_timeout
        check_address(options["address"])
        return command(*args, **options)

    wrapped: Any = click.option(
        "--connect-timeout",
        default=CONNECT_TIMEOUT_S,
        show_default=True,
        metavar="S",
        callback=positive,
        help="Wait so long for a Resource Manager that is still starting.",
    )(identified)
    for what, text in _TLS_OPTIONS:
        wrapped = click.option(
            f"--tls-{what}",
            type=click.Path(path_type=Path),
            metavar="FILE",
            envvar=f"WEFT_TLS_{what.upper()}",
            help=text,
        )(wrapped)
    return address_option(wrapped)  # type: ignore[no-any-return]


def connected(address: str) -> Client:
    """Return a client that waits for the manager as long as `--connect-timeout` says."""
    waited_s = click.get_current_context().meta.get(_CONNECT_TIMEOUT, CONNECT_TIMEOUT_S)
    client = Client(address, connect_timeout_s=waited_s)
    told: set[int] = set()

    def tell(members: tuple[int, ...]) -> None:
        if fresh := set(members) - told:
            told.update(fresh)
            click.echo(missing_text(sorted(fresh)), err=True)

    client.when_missing(tell)
    return client


def positive(ctx: click.Context, option: click.Parameter, value: float) -> float:
    """Check a number that must be above 0; raises BadParameter."""
    if not 0 < value < float("inf"):
        raise click.BadParameter(f"expected a positive number, got {value:g}")
    return value


def _above_zero_or_none(
    ctx: click.Context, option: click.Parameter, value: float | None
) -> float | None:
    return None if value is None else positive(ctx, option, value)


_TLS_OPTIONS = (
    ("key", "Its private key."),
    ("cert", "The certificate to show."),
    ("ca", "Authority to trust (PEM); with the next two: mutual TLS."),
)


def json_option(command: F) -> F:
    """Add `--json`: the data instead of a table."""
    return click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")(command)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", type=click.Path(path_type=Path))
@click.option("--wait", is_flag=True, help="Show progress until all jobs ended; exit 1 on failure.")
@click.option("--replay", is_flag=True, help="Submit each job at its arrival_s, not at once.")
@click.option(
    "--queue",
    default="",
    shell_complete=completing.queues,
    help="Use this queue instead of the job's own.",
)
@click.option(
    "--lifetime",
    type=float,
    metavar="S",
    callback=_above_zero_or_none,
    help="Kill each job that has not ended S seconds after its submission.",
)
@click.option(
    "--time-scale",
    default=1.0,
    metavar="X",
    callback=positive,
    show_default=True,
    help="With --replay: arrivals come X times faster than the file says.",
)
@manager_option
@json_option
def submit(
    jobs: tuple[Path, ...],
    wait: bool,
    replay: bool,
    queue: str,
    lifetime: float | None,
    time_scale: float,
    address: str,
    as_json: bool,
) -> None:
    """Submit job files; every file is checked before the first job is submitted."""
    from weft.client.failing import say_why
    from weft.client.submitting import read_named, submit_all, wait_for

    named = read_named(jobs, queue)
    files, checked = [path for path, _ in named], [job for _, job in named]
    if lifetime is not None:
        checked = [dataclasses.replace(job, lifetime_s=lifetime) for job in checked]
    with connected(address) as client:
        apps = submit_all(client, checked, replay, time_scale, files)
        ids = [format_app(client.cluster_ts, app) for app in apps]
        if not wait:
            if as_json:
                show.echo_json(ids)
            else:
                click.echo("\n".join(ids))
            return
        if not as_json:
            _say_ids(ids, [job.name for job in checked])
        try:
            scale = client.manager().time_scale
            reports = wait_for(client, apps, quiet=as_json, scale=scale)
        except KeyboardInterrupt:
            raise InterruptedWait(ids) from None
        if as_json:
            show.echo_json([show.app_data(r) for r in reports])
        else:
            show.show_apps(reports, client.metrics().now_s)
            show.say_pace(scale)
        failed = [r for r in reports if r.final_status != "SUCCEEDED"]
        if failed and not as_json:
            say_why(client, failed)
        if failed:
            raise WeftError(f"{len(failed)} of {len(reports)} jobs did not succeed")


def _say_ids(ids: list[str], names: list[str]) -> None:
    """Print the ids first: a user who loses the terminal needs them."""
    shown = list(zip(ids, names, strict=True))[:IDS_SHOWN]
    for text, name in shown:
        click.echo(f"{text} {show.safe(name)[:60]}", err=True)
    if len(ids) > IDS_SHOWN:
        click.echo(f"... to {ids[-1]}: {len(ids)} applications", err=True)


@click.command()
@click.argument(
    "apps", nargs=-1, required=True, metavar="APP...", shell_complete=completing.numbers
)
@manager_option
def kill(apps: tuple[str, ...], address: str) -> None:
    """Kill applications.

    APP is an id, a number, or a job's name where one application of it has not ended.
    """
    with connected(address) as client:
        numbers = [find_open(client, app) for app in apps]
        for text, app in zip(apps, numbers, strict=True):
            before = client.application(app)
            if show.ended(before):
                how = show.state_of(before)
                click.echo(f"{text} had ended before: {how}; nothing was done", err=True)
            else:
                click.echo(f"{text} {client.kill(app, 'killed by weft kill')}")


@click.command()
@click.argument("app", shell_complete=completing.applications)
@click.argument("queue", shell_complete=completing.queues)
@manager_option
def move(app: str, queue: str, address: str) -> None:
    """Move an application to another leaf queue.

    APP is an id, its number, a job's name (the newest of that name), or - for the newest of all.
    """
    with connected(address) as client:
        number = find_app(client, app)
        click.echo(f"{_id_of(client, number)} {client.move(number, queue)} in {queue}")


@click.command()
@click.argument("app", shell_complete=completing.applications)
@click.argument("priority", type=int)
@manager_option
def priority(app: str, priority: int, address: str) -> None:
    """Change an application's priority; larger goes first.

    APP is an id, its number, a job's name (the newest of that name), or - for the newest of all.
    """
    with connected(address) as client:
        number = find_app(client, app)
        state = client.set_priority(number, priority)
        click.echo(f"{_id_of(client, number)} {state} priority {priority}")


def _id_of(client: Client, number: AppId) -> str:
    """Return the whole id, as a name says not which of several it was."""
    return format_app(client.application(number).cluster_ts, number)


_SORT = "One of {}; with - before it the largest first."


@click.command()
@click.option("--state", "states", multiple=True, help="Only these states (may be repeated).")
@click.option("--queue", default="", shell_complete=completing.queues, help="Only this queue.")
@click.option("--user", default="", help="Only this user.")
@click.option(
    "--limit", default=0, type=click.IntRange(min=0), metavar="N", help="Only the newest N; 0: all."
)
@click.option(
    "--sort", default="id", metavar="COLUMN", help=_SORT.format(", ".join(show.APP_SORTS))
)
@manager_option
@json_option
def apps(
    states: tuple[str, ...],
    queue: str,
    user: str,
    limit: int,
    sort: str,
    address: str,
    as_json: bool,
) -> None:
    """List applications."""
    wanted = app_states(states)
    show.sort_apps((), sort, 0.0)
    with connected(address) as client:
        if queue:
            known_queue(client, queue)
        most = limit if wanted.exact else 0
        reports = client.applications(wanted.asked, queue, user, most)
        now_s = client.metrics().now_s
        newest = [r for r in reports if wanted.holds(r)][-limit:]
        chosen = show.sort_apps(newest, sort, now_s)
        if as_json:
            show.echo_json([show.app_data(r) for r in chosen])
        else:
            show.show_apps(chosen, now_s)
            show.say_pace(client.manager().time_scale)


@click.command()
@click.argument("app", shell_complete=completing.applications)
@click.option("--containers", is_flag=True, help="List its containers as well.")
@manager_option
@json_option
def app(app: str, containers: bool, address: str, as_json: bool) -> None:
    """Show one application with its stages.

    APP is an id, its number, a job's name (the newest of that name), or - for the newest of all.
    """
    with connected(address) as client:
        number = find_app(client, app)
        report = client.application(number)
        held = client.containers(number) if containers else ()
        if as_json:
            data = show.app_data(report)
            show.echo_json({**data, "containers": list(held)} if containers else data)
            return
        now_s = client.metrics().now_s
        show.show_app(report, now_s, client.manager().time_scale)
        if containers:
            click.echo()
            show.show_containers(held, report.submitted_s, now_s)
            show.show_unlisted(report, held)


@click.command()
@click.argument("app", shell_complete=completing.applications)
@manager_option
@json_option
def explain(app: str, address: str, as_json: bool) -> None:
    """Say why each pending stage of an application is pending.

    APP is an id, its number, a job's name (the newest of that name), or - for the newest of all.
    """
    with connected(address) as client:
        number = find_app(client, app)
        explanation = client.explain(number)
        if as_json:
            show.echo_json(explanation)
            return
        stages = client.application(number).stages
        begun = {one.name for one in stages if one.running or one.finished or one.failed_attempts}
        show.show_explanation(explanation, begun)
        if explanation.stages:
            show.say_pace(client.manager().time_scale)


@click.command()
@click.argument("app", shell_complete=completing.applications)
@click.option("--stage", default="", help="Only this stage.")
@click.option(
    "--task", type=click.IntRange(min=0), default=None, help="Only this task of the stage."
)
@click.option("--stream", type=click.Choice(["stdout", "stderr", "both"]), default="both")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N lines."
)
@click.option("--follow", "-f", is_flag=True, help="Go on as they write, until the job ended.")
@manager_option
def logs(
    app: str,
    stage: str,
    task: int | None,
    stream: str,
    tail: int | None,
    follow: bool,
    address: str,
) -> None:
    """Print what the commands of an application wrote.

    APP is an id, its number, a job's name (the newest of that name), or - for the newest of all.
    """
    from weft.client.logs import Wanted, follow_logs, print_logs

    with connected(address) as client:
        number = find_app(client, app)
        wanted = Wanted(stage, task, ("stdout", "stderr") if stream == "both" else (stream,), tail)
        (follow_logs if follow else print_logs)(client, number, wanted)


commands: list[click.Command] = [submit, kill, move, priority, apps, app, explain, logs]
