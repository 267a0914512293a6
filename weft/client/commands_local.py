"""Commands that start a cluster on this machine: demo, up."""

import signal
import sys
import threading
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.client import show
from weft.client.api import DEFAULT_ADDRESS, Client
from weft.client.commands_apps import address_option, positive
from weft.client.commands_yarn import take_yarn
from weft.client.detached import say_ready, start_detached, stop_detached
from weft.client.local import EMULATED_NODES, LocalCluster, LocalSettings
from weft.client.scheduling import scheduler_options
from weft.client.text import plural
from weft.model.errors import InputError, WeftError
from weft.policies.parameters import split_settings
from weft.policies.presets import PARTS

F = TypeVar("F", bound=Callable[..., Any])
ROLES = ("rm", "nm", "am", "web")
_SETTINGS_TOO = "weft.settings_too"


class SettingsHelp(click.Command):
    """Lists every setting of every role with `--help-all`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Add `--help-all` beside `--help`."""

        def show_all(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
            if asked and not ctx.resilient_parsing:
                ctx.meta[_SETTINGS_TOO] = True
                click.echo(ctx.get_help())
                ctx.exit()

        return [
            *super().get_params(ctx),
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=show_all,
                help="Show this message with the settings of every role, and exit.",
            ),
        ]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the settings that `--rm-set`, `--nm-set`, `--am-set` and `--web-set` take."""
        if not ctx.meta.get(_SETTINGS_TOO):
            return
        from weft.runtime import role_settings as roles
        from weft.runtime.settings import ProcessSettings, describe

        models: tuple[type[ProcessSettings], ...] = (
            roles.RmSettings,
            roles.NmSettings,
            roles.AmSettings,
            roles.WebSettings,
        )
        for role, model in zip(ROLES, models, strict=True):
            with formatter.section(f"Settings for --{role}-set NAME=VALUE (WEFT_{role.upper()}_*)"):
                formatter.write_dl(
                    [(f"{name} [{default}]", text) for name, default, text in describe(model)]
                )


def cluster_options(command: F) -> F:
    """Add the options that demo and up share."""
    for option in reversed(
        [
            click.option(
                "--nodes",
                default=None,
                type=click.IntRange(min=1),
                show_default="20",
                help="Emulated nodes.",
            ),
            click.option(
                "--cluster", default="", help="Cluster file or short form, instead of --nodes."
            ),
            scheduler_options,
            click.option(
                "--set",
                "options",
                multiple=True,
                metavar="KEY=VALUE",
                help="A parameter: matcher.NAME, planner.NAME or asker.NAME; a setting: "
                "manager.NAME, node.NAME or master.NAME, as in weft simulate.",
            ),
            click.option(
                "--time-scale",
                default=1.0,
                show_default=True,
                metavar="X",
                callback=positive,
                help="The cluster's clock runs X times as fast as the wall clock.",
            ),
            click.option(
                "--pace",
                type=click.Choice(["prompt", "yarn"]),
                default="prompt",
                show_default=True,
                help="yarn: everything moves on 1 s heartbeats.",
            ),
            click.option(
                "--launch",
                type=click.Choice(["hosted", "process"]),
                default="hosted",
                show_default=True,
                help="Masters in one AM host, or a process each.",
            ),
            click.option(
                "--trace",
                default=None,
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="When it ends, write a trace of its tasks for Perfetto (x.perfetto.json).",
            ),
            click.option(
                "--tape",
                default=None,
                type=click.Path(path_type=Path),
                metavar="FOLDER",
                help="Keep every event that the scheduler handles there, for weft replay.",
            ),
            click.option("--rm-set", multiple=True, metavar="NAME=VALUE", help="RM setting."),
            click.option("--nm-set", multiple=True, metavar="NAME=VALUE", help="NM setting."),
            click.option("--am-set", multiple=True, metavar="NAME=VALUE", help="AM setting."),
            click.option("--web-set", multiple=True, metavar="NAME=VALUE", help="Web setting."),
        ]
    ):
        command = option(command)
    return command


# A part of a cluster as simulations name it -> the role whose process has its settings.
ROLE_OF = {"manager": "rm", "node": "nm", "master": "am"}


def _settings(options: dict[str, Any], **more: Any) -> LocalSettings:
    flags = {role: options.pop(f"{role}_set") for role in ROLES}
    for role, pairs in flags.items():
        split_settings(pairs, f"--{role}-set")
    options["nodes"] = options["nodes"] or 0
    options["options"] = split_settings(options["options"])
    for part, role in ROLE_OF.items():
        # They are written as for a simulation, and go before those of --rm-set and the like.
        named = {k: v for k, v in options["options"].items() if k.startswith(f"{part}.")}
        pairs = [f"{key.partition('.')[2]}={value}" for key, value in named.items()]
        flags[role] = (*pairs, *flags[role])
        options["options"] = {k: v for k, v in options["options"].items() if k not in named}
    for key in options["options"]:
        if key.partition(".")[0] not in PARTS or not key.partition(".")[2]:
            known = ", ".join(f"{part}.NAME" for part in (*PARTS, *ROLE_OF))
            raise InputError(f"--set {key}", f"expected one of {known}")
    if options.get("mode") == "process" and options["nodes"] > 1 and not options["cluster"]:
        raise InputError(
            "--nodes",
            "in process mode this host is one node; --cluster describes several, "
            "as 2x4vcores,8192memory_mb",
        )
    if options["nodes"] and options["cluster"]:
        from weft.workloads.cluster_file import load_cluster

        count = len(load_cluster(options["cluster"]).nodes)
        if count != options["nodes"]:
            raise InputError(
                "--nodes", f"{options['nodes']} contradicts the cluster's {count}: leave one out"
            )
    return LocalSettings(flags=flags, **options, **more)


@click.command(cls=SettingsHelp)
@cluster_options
@click.option("--keep", is_flag=True, help="Leave the cluster running until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def demo(keep: bool, as_json: bool, trace: Path | None, **options: Any) -> None:
    """Start a local cluster, run the sample jobs on it, print the table of their times, stop."""
    from weft.client.submitting import read_jobs, submit_all, wait_for

    _check_trace(trace)
    _end_on_sigterm()
    samples = resources.files("weft.client") / "samples" / "tpch"
    with resources.as_file(samples) as folder:
        jobs = read_jobs(sorted(Path(folder).glob("*.json")))
    settings = _settings(options, web=keep, events=trace is not None)
    click.echo(f"starting {settings.nodes or EMULATED_NODES} emulated nodes ...", err=True)
    with LocalCluster(settings, tell=_say) as cluster, Client(cluster.address) as client:
        _say_parts(cluster)
        apps = submit_all(client, jobs, replay=False, time_scale=1.0)
        reports = wait_for(client, apps, quiet=as_json, stages=False)
        if as_json:
            show.echo_json([show.app_data(r) for r in reports])
        else:
            _say_results(client, reports)
        failed = [r.name for r in reports if r.final_status != "SUCCEEDED"]
        if keep:
            click.echo(_endpoints(cluster))
            _wait_for_end(cluster)
        _write_trace(cluster, trace)
    if failed:
        raise WeftError(f"not succeeded: {', '.join(failed)}")


@click.command(cls=SettingsHelp)
@cluster_options
@click.option(
    "--mode",
    type=click.Choice(["emulated", "process"]),
    default="emulated",
    show_default=True,
    help="process: this machine is a node and runs the stages' commands.",
)
@click.option(
    "--nm-processes",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Processes of emulated nodes.",
)
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Keep state and logs here.")
@click.option("--events", is_flag=True, help="Every process writes its facts into the folder.")
@click.option("--any-ports", is_flag=True, help="Free ports instead of the well-known ones.")
@click.option("--web/--no-web", default=True, show_default=True, help="Pages and YARN's REST API.")
@click.option(
    "--hadoop",
    is_flag=True,
    help="Serve YARN's own wire (Spark, Flink, ...): needs --mode process to run anything.",
)
@click.option(
    "--managers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 9),
    metavar="N",
    help="Resource Managers: one leads, the others take over. They share an etcd.",
)
@click.option(
    "--members",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    metavar="N",
    help="Members: managers with a part of the nodes each, behind one router.",
)
@click.option(
    "--store",
    default="",
    metavar="etcd://HOST:PORT,...",
    help="That etcd; without it one is started here.",
)
@click.option(
    "--yarn-conf",
    default=None,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Queues, nodes and settings of YARN's own files there; --nodes of its size if none lists.",
)
@click.option("--detach", is_flag=True, help="Return when it serves; `weft down` ends it.")
def up(
    folder: Path | None,
    any_ports: bool,
    trace: Path | None,
    detach: bool,
    yarn_conf: Path | None,
    **options: Any,
) -> None:
    """Start a local cluster and keep it until Ctrl-C, or with --detach until `weft down`."""
    _check_trace(trace)
    if options["hadoop"] and options["mode"] != "process":
        raise InputError("--hadoop", "serves programs that run commands: add --mode process")
    if options["hadoop"] and options["members"] > 1:
        raise InputError("--hadoop", "masters of YARN's wire want one manager: leave --members out")
    options["events"] = options["events"] or trace is not None
    _end_on_sigterm()
    if yarn_conf is not None:
        take_yarn(yarn_conf, options, folder)
    settings = _settings(options, fixed_ports=not any_ports, state=folder is not None)
    click.echo("starting a cluster on this machine ...", err=True)
    if detach:
        words = [word for word in sys.argv[2:] if word != "--detach"]
        click.echo(start_detached(words, folder))
        return
    with LocalCluster(settings, folder, _say) as cluster:
        click.echo(_endpoints(cluster))
        ends = say_ready(
            cluster.address,
            _endpoints(cluster),
            str(cluster.folder) if cluster.temporary else "",
        )
        if settings.managers > 1:
            with Client(cluster.address) as client:
                click.echo(f"leader: {client.manager().leader} (weft managers shows them all)")
        _wait_for_end(cluster, ends)
        _write_trace(cluster, trace)


def _check_trace(trace: Path | None) -> None:
    """Refuse a file that cannot be written before the cluster runs, not when it has ended."""
    if trace is not None:
        from weft.results.perfetto import check_trace

        check_trace(trace)


def _write_trace(cluster: LocalCluster, trace: Path | None) -> None:
    """Write what ran so far; a folder that is kept gets the tables of `weft.results` as well."""
    if trace is None:
        return
    from weft.results.perfetto import write_trace
    from weft.results.recorded import jobs_of, stages_of, tasks_of, write_tables

    with Client(cluster.address) as client:
        reports = client.applications()
        jobs = {report.app_id: client.job(report.app_id) for report in reports}
    # The logs are complete only once the cluster has stopped.
    cluster.stop()
    ts = reports[0].cluster_ts if reports else 0
    logs = sorted(cluster.folder.glob("nm*.events"))
    tasks = tasks_of(logs, jobs, ts, cluster.folder / "rm.events")
    count = write_trace(trace, tasks, {app: job.name for app, job in jobs.items()})
    if not cluster.temporary:
        tables = {"jobs": jobs_of(reports, tasks), "tasks": tasks, "stages": stages_of(jobs)}
        write_tables(cluster.folder, tables)
    click.echo(f"{trace}: {plural(count, 'task')}", err=True)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _say_parts(cluster: LocalCluster) -> None:
    parts = ", ".join(f"{name} (pid {p.pid})" for name, p in cluster.processes.items())
    click.echo(f"running: {parts}", err=True)


def _endpoints(cluster: LocalCluster) -> str:
    """Return where each part serves, and how to use it, a line each."""
    lines = []
    for name, ready in cluster.ready.items():
        if "url" in ready:
            lines.append(f"{name:<4} {ready['url']}")
        elif "clients" in ready:
            places = ("clients", "schedulers", "files")
            lines.append(f"{name} " + "  ".join(f"{p} {ready[p]}" for p in places if p in ready))
        else:
            address = ready.get("address", "-")
            lines.append(f"{name:<4} grpc {address:<22} metrics {ready['metrics']}")
    if cluster.conf is not None:
        lines.append(f"export HADOOP_CONF_DIR={cluster.conf}")
    goes = "; removed when it ends, as no --dir was given" if cluster.temporary else ""
    lines.append(f"logs in {cluster.folder}{goes}")
    lines.append(f"submit with: weft submit --rm {cluster.address} JOB")
    if cluster.address != DEFAULT_ADDRESS:
        lines.append(f"export WEFT_RM_ADDRESS={cluster.address}   # for all commands")
    return "\n".join(lines)


def _say_results(client: Client, reports: list[Any]) -> None:
    metrics = client.metrics()
    show.table(
        (
            show.Column("job", kind="name"),
            show.Column("queue", 3, kind="name"),
            show.Column("stages", 2),
            show.Column("tasks", 1),
            show.Column("result", kind="state"),
            show.Column("wait s", 4),
            show.Column("run s", 5),
            show.Column("completion s"),
        ),
        [
            (
                r.name,
                r.queue,
                len(r.stages),
                r.tasks,
                r.final_status,
                max(0.0, r.started_s - r.submitted_s),
                max(0.0, r.finished_s - r.started_s),
                r.finished_s - r.submitted_s,
            )
            for r in reports
        ],
        title=f"{plural(len(reports), 'job')} under {metrics.scheduler}",
    )
    first = min(r.submitted_s for r in reports)
    last = max(r.finished_s for r in reports)
    mean = sum(r.finished_s - r.submitted_s for r in reports) / len(reports)
    click.echo(f"makespan {last - first:.1f} s, mean job completion time {mean:.1f} s")


def _end_on_sigterm() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))


def _wait_for_end(cluster: LocalCluster, ends: str = "Ctrl-C") -> None:
    click.echo(f"{ends} ends the cluster", err=True)
    ended = threading.Event()
    try:
        while not ended.wait(0.5):
            if mended := cluster.mend():
                click.echo(mended, err=True)
            if failed := cluster.failed():
                raise WeftError(failed)
    except KeyboardInterrupt:
        click.echo("stopping ...", err=True)


@click.command()
@address_option
def down(address: str) -> None:
    """End the cluster that `weft up --detach` started."""
    click.echo(stop_detached(address), err=True)


commands: list[click.Command] = [demo, up, down]
