"""Commands about the cluster: nodes, queues, top, events."""

import json
import time

import click

from weft.client import show
from weft.client.api import Client
from weft.client.commands_apps import json_option, manager_option


@click.command()
@click.option("--state", "states", multiple=True, help="Only these states (may be repeated).")
@manager_option
@json_option
def nodes(states: tuple[str, ...], address: str, as_json: bool) -> None:
    """List nodes."""
    with Client(address) as client:
        reports = client.nodes([s.upper() for s in states])
        if as_json:
            show.echo_json(list(reports))
        else:
            show.show_nodes(reports)


@click.command()
@manager_option
@json_option
def queues(address: str, as_json: bool) -> None:
    """List queues with their shares."""
    with Client(address) as client:
        root = client.queues()
        if as_json:
            show.echo_json(root)
        else:
            show.show_queues(root)


@click.command()
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="One look, then end.")
@manager_option
@json_option
def top(every: float, once: bool, address: str, as_json: bool) -> None:
    """Watch the cluster: use, queues and running applications."""
    with Client(address) as client:
        while True:
            metrics = client.metrics()
            running = client.applications(["RUNNING", "ACCEPTED"], limit=20)
            if as_json:
                show.echo_json({"metrics": metrics, "apps": list(running)})
            else:
                if not once:
                    click.clear()
                show.show_metrics(metrics)
                click.echo()
                show.show_apps(running)
            if once:
                return
            time.sleep(every)


@click.command()
@click.option("--limit", default=0, help="End after N events.")
@manager_option
@json_option
def events(limit: int, address: str, as_json: bool) -> None:
    """Follow the cluster's facts as they happen."""
    with Client(address) as client:
        for number, event in enumerate(client.events(), 1):
            if as_json:
                click.echo(json.dumps(event))
            else:
                rest = " ".join(f"{k}={v}" for k, v in event.items() if k not in ("fact", "now_s"))
                click.echo(f"{event.get('now_s', 0.0):.3f} {event.get('fact', '')} {rest}")
            if number == limit:
                return


commands: list[click.Command] = [nodes, queues, top, events]
