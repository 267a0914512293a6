"""Commands about the cluster: nodes, queues, managers, top, events."""

import json
import time
from typing import Any

import click

from weft.client import completing, show
from weft.client.api import DRAIN_S, ENDED, Client, RefusedError
from weft.client.commands_apps import connected, json_option, manager_option, positive
from weft.client.naming import find_app, node_states
from weft.client.text import missing_text
from weft.model.cluster import amounts_from_text
from weft.model.errors import WeftError
from weft.protocol.requests import UNREACHABLE, ManagerReport

POLL_S = 0.5
# One manager of several may take so long to report its state.
ANSWER_S = 3.0
LEADS = ("ALONE", "LEADER")


@click.command()
@click.option("--state", "states", multiple=True, help="Only these states (may be repeated).")
@click.option(
    "--decommission",
    "leaving",
    multiple=True,
    metavar="NODE",
    shell_complete=completing.nodes,
    help="Take a node out of service: nothing new runs there (may be repeated).",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=DRAIN_S,
    show_default=True,
    metavar="S",
    help="With --decommission: stop what still runs there after S; below 0: never.",
)
@click.option(
    "--recommission",
    "returning",
    multiple=True,
    metavar="NODE",
    shell_complete=completing.nodes,
    help="Put a node back into service (may be repeated).",
)
@click.option(
    "--update",
    "updated",
    multiple=True,
    metavar="NODE",
    shell_complete=completing.nodes,
    help="Say what a node has, while it runs (may be repeated).",
)
@click.option(
    "--capacity",
    default="",
    metavar="AMOUNTS",
    help="With --update: 4vcores,8192memory_mb; at most what the node offers.",
)
@click.option("--labels", metavar="A,B", help='With --update: these labels instead; "": none.')
@click.option("--own", is_flag=True, help="With --update: what the node itself says counts again.")
@click.option(
    "--sort",
    default="node",
    metavar="COLUMN",
    help=f"One of {', '.join(show.NODE_SORTS)}; with - before it the largest first.",
)
@click.option("--wait", is_flag=True, help="Until the nodes are DECOMMISSIONED, or RUNNING again.")
@manager_option
@json_option
def nodes(
    states: tuple[str, ...],
    leaving: tuple[str, ...],
    timeout_s: float,
    returning: tuple[str, ...],
    sort: str,
    wait: bool,
    address: str,
    as_json: bool,
    **said: Any,
) -> None:
    """List nodes, take them out of service and put them back, or say what they have."""
    if said["capacity"] or said["labels"] is not None or said["own"] or said["updated"]:
        _update(address, as_json, **said)
        return
    if both := set(leaving) & set(returning):
        raise click.UsageError(f"{min(both)} cannot leave and return at once")
    if wait and not (leaving or returning):
        raise click.UsageError("--wait goes with --decommission or --recommission")
    wanted_states = node_states(states)
    show.sort_nodes((), sort)
    with connected(address) as client:
        if leaving or returning:
            now = {name: client.decommission(name, timeout_s) for name in leaving}
            now |= {name: client.recommission(name) for name in returning}
            if wait:
                wanted = dict.fromkeys(leaving, "DECOMMISSIONED")
                now = _await_states(client, wanted | dict.fromkeys(returning, "RUNNING"))
            _show_states(now, as_json)
            return
        reports = show.sort_nodes(client.nodes(wanted_states), sort)
        if as_json:
            show.echo_json(reports)
        else:
            show.show_nodes(reports)


def _update(
    address: str,
    as_json: bool,
    updated: tuple[str, ...],
    capacity: str,
    labels: str | None,
    own: bool,
) -> None:
    """Say what nodes have, and show what they have from now on."""
    if not updated:
        raise click.UsageError("--capacity, --labels and --own go with --update")
    if not (capacity or labels is not None or own):
        raise click.UsageError("--update goes with --capacity, --labels or --own")
    amounts = amounts_from_text(capacity, "--capacity") if capacity else None
    tags = None if labels is None else [one.strip() for one in labels.split(",") if one.strip()]
    with connected(address) as client:
        now = {name: client.update_node(name, amounts, tags, own=own) for name in updated}
        if as_json:
            show.echo_json(now)
        else:
            show.show_nodes([report for name in updated for report in client.nodes(node=name)])


def _show_states(now: dict[str, str], as_json: bool) -> None:
    if as_json:
        show.echo_json(now)
    else:
        click.echo("\n".join(f"{name} {state}" for name, state in now.items()))


def _await_states(client: Client, wanted: dict[str, str]) -> dict[str, str]:
    """Wait until each node is in its state; raises WeftError where the order was undone."""
    other = {"DECOMMISSIONED": "RUNNING", "RUNNING": "DECOMMISSIONED"}
    while True:
        now = {name: r.state for name in wanted for r in client.nodes(node=name)}
        for name, state in now.items():
            if state == other[wanted[name]]:
                raise WeftError(f"{name} is {state}: somebody gave another order")
        if now == wanted:
            return now
        time.sleep(POLL_S)


@click.command()
@click.option(
    "--apply",
    "source",
    metavar="FILE",
    type=click.Path(exists=True),
    help="Set the queues that a cluster file names, or YARN's capacity-scheduler.xml.",
)
@click.option("--dry-run", is_flag=True, help="With --apply: only tell what would change.")
@manager_option
@json_option
def queues(source: str | None, dry_run: bool, address: str, as_json: bool) -> None:
    """List queues with their shares, or change them while the cluster runs.

    Containers keep running; a queue that FILE does not name is removed, and has to be empty. What
    FILE holds beside queues counts for nothing.
    """
    if dry_run and source is None:
        raise click.UsageError("--dry-run goes with --apply")
    with connected(address) as client:
        if source is not None:
            _apply(client, source, dry_run, as_json)
            return
        root = client.queues()
        if as_json:
            show.echo_json(root)
        else:
            show.show_queues(root)


def _apply(client: Client, source: str, dry_run: bool, as_json: bool) -> None:
    """Set the queues of a file, and show what changes."""
    from weft.workloads.cluster_file import load_queues

    wanted, left_out = load_queues(source, client.metrics().capacity)
    for name, why in left_out.items():
        click.echo(f"left out: {name}: {why}", err=True)
    answer = client.set_queues(wanted, dry_run=dry_run)
    if as_json:
        show.echo_json(answer)
    else:
        show.show_changes(answer, dry_run)


@click.command()
@click.option(
    "--every",
    default=1.0,
    show_default=True,
    callback=positive,
    metavar="S",
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="One look, then end.")
@click.option(
    "--sort",
    default="id",
    metavar="COLUMN",
    help=f"One of {', '.join(show.APP_SORTS)}; with - before it the largest first.",
)
@manager_option
@json_option
def top(every: float, once: bool, sort: str, address: str, as_json: bool) -> None:
    """Watch the cluster: use, queues and running applications."""
    show.sort_apps((), sort, 0.0)
    with connected(address) as client:
        while True:
            metrics = client.metrics()
            running = client.applications(["RUNNING", "ACCEPTED"], limit=20)
            if as_json:
                show.echo_json({"metrics": metrics, "apps": list(running)})
            else:
                if not once:
                    click.clear()
                    if client.missing:
                        click.echo(missing_text(client.missing))
                show.show_metrics(metrics)
                click.echo()
                show.show_apps(show.sort_apps(running, sort, metrics.now_s), metrics.now_s)
                show.say_pace(client.manager().time_scale)
            if once:
                return
            time.sleep(every)


@click.command()
@click.option(
    "--limit", default=0, type=click.IntRange(min=0), help="End after N events; 0: never."
)
@click.option(
    "--app",
    "apps",
    multiple=True,
    metavar="APP",
    shell_complete=completing.applications,
    help="Only of this application.",
)
@manager_option
@json_option
def events(limit: int, apps: tuple[str, ...], address: str, as_json: bool) -> None:
    """Follow the cluster's facts as they happen.

    APP is an id, its number, a job's name (the newest of that name), or - for the newest of all.
    """
    from weft.client.facts import Named

    with connected(address) as client:
        wanted = frozenset(find_app(client, app) for app in apps)
        # An unknown application is refused here, as its facts would never come.
        for number in wanted:
            client.application(number)
        named = Named(client, wanted)
        shown = 0
        going = {number for number in wanted if not show.ended(client.application(number))}
        if wanted and not going:
            click.echo("it has ended, and its events went before: `weft app` shows it", err=True)
            return
        for event in client.events():
            # A manager of an earlier version tells numbers now and then, which are for programs.
            if not named.wanted(event) or (event.get("fact") == "Gauge" and not as_json):
                continue
            click.echo(json.dumps(named.data(event)) if as_json else named.line(event))
            shown += 1
            if shown == limit:
                return
            if event.get("fact") == "AppChanged" and event.get("state") in ENDED:
                going.discard(event.get("app"))
                if wanted and not going:
                    return


@click.command()
@manager_option
@json_option
def managers(address: str, as_json: bool) -> None:
    """List Resource Managers: who leads or stands by, where their state is; a router's members."""
    reports = [_report_of(place.strip()) for place in address.split(",")]
    if as_json:
        show.echo_json(reports)
    else:
        show.show_managers(reports)
    if not any(report.standing in LEADS for report in reports):
        raise WeftError("nobody leads")


def _report_of(place: str) -> ManagerReport:
    """Return what a Resource Manager says of itself, or that it cannot be reached."""
    with Client(place, deadline_s=ANSWER_S) as client:
        try:
            return client.manager()
        except RefusedError:
            raise
        except WeftError as error:
            return ManagerReport(place, UNREACHABLE, reason=str(error))


commands: list[click.Command] = [nodes, queues, managers, top, events]
