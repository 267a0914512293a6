"""What a shell offers for a word that is being typed: presets, and what a running cluster has."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from weft.client.api import DEFAULT_ADDRESS, Client
from weft.model.errors import WeftError
from weft.policies.presets import PRESETS

PATIENCE_S = 1.0
APPS_MAX = 50

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def presets(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer the names of schedulers."""
    return [CompletionItem(name) for name in PRESETS if name.startswith(typed)]


def _of_cluster(ask: Callable[[Client], Iterable[tuple[str, str]]]) -> Completer:
    """Return what offers a cluster's (name, what it is); nothing where none answers soon."""

    def complete(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
        address = ctx.params.get("address") or DEFAULT_ADDRESS
        try:
            with Client(address, PATIENCE_S, connect_timeout_s=0.0) as client:
                found = list(ask(client))
        except WeftError:
            return []
        return [CompletionItem(name, help=what) for name, what in found if name.startswith(typed)]

    return complete


def _numbers(client: Client) -> Iterable[tuple[str, str]]:
    for report in reversed(client.applications(limit=APPS_MAX)):
        yield str(report.app_id), f"{report.name} {report.state}"


def _applications(client: Client) -> Iterable[tuple[str, str]]:
    yield from _numbers(client)
    # A shell would take a name with a space for two words.
    names = [one.name for one in client.applications(limit=APPS_MAX) if " " not in one.name]
    for name in dict.fromkeys(reversed(names)):
        yield name, "the newest of that name"


def _queues(client: Client) -> Iterable[tuple[str, str]]:
    waiting = [client.queues()]
    while waiting:
        queue = waiting.pop(0)
        waiting.extend(queue.children)
        if not queue.children:
            yield queue.name, ""


applications = _of_cluster(_applications)
numbers = _of_cluster(_numbers)
nodes = _of_cluster(lambda client: ((node.node_id, node.state) for node in client.nodes()))
queues = _of_cluster(_queues)
