"""Commands about applications: submit, kill, move, priority, apps, app, explain, logs."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.client import show
from weft.client.api import DEFAULT_ADDRESS, Client
from weft.errors import WeftError
from weft.ids import format_app, parse_app

F = TypeVar("F", bound=Callable[..., Any])


def manager_option(command: F) -> F:
    """`--rm HOST:PORT` and the files of TLS, also from the environment."""

    @functools.wraps(command)
    def identified(
        *args: Any, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None, **options: Any
    ) -> Any:
        from weft.wire import tls

        tls.use(tls.read(tls_ca, tls_cert, tls_key))
        return command(*args, **options)

    wrapped: Any = identified
    for what, text in _TLS_OPTIONS:
        wrapped = click.option(
            f"--tls-{what}", type=click.Path(path_type=Path), metavar="FILE",
            envvar=f"WEFT_TLS_{what.upper()}", help=text,
        )(wrapped)  # fmt: skip
    return click.option(  # type: ignore[no-any-return]
        "--rm",
        "address",
        default=DEFAULT_ADDRESS,
        envvar="WEFT_RM_ADDRESS",
        show_default=True,
        metavar="HOST:PORT",
        help="The Resource Manager.",
    )(wrapped)


_TLS_OPTIONS = (
    ("key", "Its private key."),
    ("cert", "The certificate to show."),
    ("ca", "Authority to trust (PEM); with the next two: mutual TLS."),
)


def json_option(command: F) -> F:
    """`--json`: the data instead of a table."""
    return click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")(command)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", type=click.Path(path_type=Path))
@click.option("--wait", is_flag=True, help="Show progress until all jobs ended; exit 1 on failure.")
@click.option("--replay", is_flag=True, help="Submit each job at its arrival_s, not at once.")
@click.option("--queue", default="", help="Use this queue instead of the job's own.")
@click.option("--time-scale", default=1.0, help="With --replay: this many seconds pass in one.")
@manager_option
@json_option
def submit(
    jobs: tuple[Path, ...],
    wait: bool,
    replay: bool,
    queue: str,
    time_scale: float,
    address: str,
    as_json: bool,
) -> None:
    """Submit job files; every file is checked before the first job is submitted."""
    from weft.client.submitting import read_jobs, submit_all, wait_for

    checked = read_jobs(jobs, queue)
    with Client(address) as client:
        apps = submit_all(client, checked, replay, time_scale)
        if not wait:
            ids = [format_app(client.cluster_ts, app) for app in apps]
            if as_json:
                show.echo_json(ids)
            else:
                click.echo("\n".join(ids))
            return
        reports = wait_for(client, apps, quiet=as_json)
        if as_json:
            show.echo_json([show.app_data(r) for r in reports])
        else:
            show.show_apps(reports)
        failed = [r for r in reports if r.final_status != "SUCCEEDED"]
        if failed:
            raise WeftError(f"{len(failed)} of {len(reports)} jobs did not succeed")


@click.command()
@click.argument("apps", nargs=-1, required=True, metavar="APP...")
@manager_option
def kill(apps: tuple[str, ...], address: str) -> None:
    """Kill applications."""
    numbers = [parse_app(app) for app in apps]
    with Client(address) as client:
        for text, app in zip(apps, numbers, strict=True):
            click.echo(f"{text} {client.kill(app, 'killed by weft kill')}")


@click.command()
@click.argument("app")
@click.argument("queue")
@manager_option
def move(app: str, queue: str, address: str) -> None:
    """Move an application to another leaf queue."""
    with Client(address) as client:
        click.echo(f"{app} {client.move(parse_app(app), queue)} in {queue}")


@click.command()
@click.argument("app")
@click.argument("priority", type=int)
@manager_option
def priority(app: str, priority: int, address: str) -> None:
    """Change an application's priority; larger goes first."""
    with Client(address) as client:
        click.echo(f"{app} {client.set_priority(parse_app(app), priority)} priority {priority}")


@click.command()
@click.option("--state", "states", multiple=True, help="Only these states (may be repeated).")
@click.option("--queue", default="", help="Only this queue.")
@click.option("--user", default="", help="Only this user.")
@click.option("--limit", default=0, help="Only the newest N.")
@manager_option
@json_option
def apps(
    states: tuple[str, ...], queue: str, user: str, limit: int, address: str, as_json: bool
) -> None:
    """List applications."""
    with Client(address) as client:
        reports = client.applications([s.upper() for s in states], queue, user, limit)
        if as_json:
            show.echo_json([show.app_data(r) for r in reports])
        else:
            show.show_apps(reports)


@click.command()
@click.argument("app")
@click.option("--containers", is_flag=True, help="List its containers as well.")
@manager_option
@json_option
def app(app: str, containers: bool, address: str, as_json: bool) -> None:
    """Show one application with its stages."""
    with Client(address) as client:
        number = parse_app(app)
        report = client.application(number)
        held = client.containers(number) if containers else ()
        if as_json:
            data = show.app_data(report)
            show.echo_json({**data, "containers": list(held)} if containers else data)
            return
        show.show_app(report)
        if containers:
            click.echo()
            show.show_containers(held)


@click.command()
@click.argument("app")
@manager_option
@json_option
def explain(app: str, address: str, as_json: bool) -> None:
    """Say why each pending stage of an application is pending."""
    with Client(address) as client:
        explanation = client.explain(parse_app(app))
        if as_json:
            show.echo_json(explanation)
        else:
            show.show_explanation(explanation)


@click.command()
@click.argument("app")
@click.option("--stage", default="", help="Only this stage.")
@click.option("--task", type=int, default=None, help="Only this task of the stage.")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "both"]), default="both")
@manager_option
def logs(app: str, stage: str, task: int | None, stream: str, address: str) -> None:
    """Print what the commands of an application wrote."""
    from weft.client.logs import print_logs

    with Client(address) as client:
        print_logs(client, parse_app(app), stage, task, stream)


commands: list[click.Command] = [submit, kill, move, priority, apps, app, explain, logs]
