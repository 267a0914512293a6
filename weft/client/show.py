"""Tables for people, JSON for programs: one way to print every listing."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from weft.ids import format_app, format_attempt
from weft.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Explanation,
    NodeReport,
    QueueReport,
)

WIDTH_MAX = 400  # columns of a table that goes into a file


def echo_json(value: object) -> None:
    """Print plain data as JSON on one line."""
    click.echo(json.dumps(value, default=_plain))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"cannot print {type(value).__name__} as JSON")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print rows under column names; numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    lines = [list(row) for row in rows]
    drawn = Table(title=title or None, header_style="bold", box=None, pad_edge=False)
    for position, name in enumerate(columns):
        numeric = bool(lines) and all(isinstance(line[position], int | float) for line in lines)
        drawn.add_column(name, justify="right" if numeric else "left", no_wrap=position == 0)
    for line in lines:
        drawn.add_row(*(_cell(value) for value in line))
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width to fit into
        console = Console(width=WIDTH_MAX)
    console.print(drawn)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value)


def amounts(named: dict[str, float]) -> str:
    """`vcores 4, memory_mb 2,048`: what is not zero."""
    return ", ".join(f"{name} {value:,.4g}" for name, value in named.items() if value) or "-"


def app_data(report: ApplicationReport) -> dict[str, Any]:
    """A report as plain data, with YARN's id strings."""
    data = dataclasses.asdict(report)
    data["id"] = format_app(report.cluster_ts, report.app_id)
    attempt = report.attempt_id
    data["attempt"] = format_attempt(report.cluster_ts, attempt) if attempt else ""
    return data


def show_apps(reports: Iterable[ApplicationReport]) -> None:
    """The table of applications."""
    table(
        ("id", "name", "queue", "state", "final", "progress", "tasks", "running", "time s"),
        [
            (
                format_app(r.cluster_ts, r.app_id),
                r.name,
                r.queue,
                r.state,
                r.final_status,
                f"{r.progress:.0%}",
                f"{r.finished_tasks}/{r.tasks}",
                r.running_containers,
                max(0.0, r.finished_s - r.submitted_s) if r.finished_s else "-",
            )
            for r in reports
        ],
    )


def show_app(report: ApplicationReport) -> None:
    """One application with its stages."""
    show_apps([report])
    if report.diagnostics:
        click.echo(f"\n{report.diagnostics}")
    click.echo()
    table(
        ("stage", "parents", "tasks", "pending", "running", "finished", "failed attempts"),
        [
            (
                s.name,
                ", ".join(name for name, _ in s.parents) or "-",
                s.tasks,
                s.pending,
                s.running,
                s.finished,
                s.failed_attempts,
            )
            for s in report.stages
        ],
    )


def show_nodes(reports: Iterable[NodeReport]) -> None:
    """The table of nodes."""
    table(
        ("node", "state", "rack", "labels", "address", "containers", "allocated", "capacity"),
        [
            (
                r.node_id,
                r.state,
                r.rack,
                ",".join(r.labels) or "-",
                r.address,
                r.containers,
                amounts(r.allocated),
                amounts(r.capacity),
            )
            for r in reports
        ],
    )


def show_queues(root: QueueReport) -> None:
    """The tree of queues as a table."""
    rows: list[tuple[object, ...]] = []

    def walk(queue: QueueReport, depth: int) -> None:
        rows.append(
            (
                "  " * depth + queue.name.rpartition(".")[2],
                f"{queue.capacity:.0%}",
                f"{queue.max_capacity:.0%}",
                f"{queue.used:.1%}",
                queue.running_apps,
                queue.pending_apps,
                queue.pending_containers,
                queue.deficit,
                amounts(queue.allocated),
            )
        )
        for child in queue.children:
            walk(child, depth + 1)

    walk(root, 0)
    table(
        ("queue", "capacity", "max", "used", "running", "pending", "asked", "deficit", "allocated"),
        rows,
    )


def show_metrics(metrics: ClusterMetrics) -> None:
    """The cluster in a few lines."""
    click.echo(
        f"scheduler {metrics.scheduler}   nodes "
        + ", ".join(f"{n} {state}" for state, n in metrics.nodes.items() if n)
    )
    click.echo("apps " + (", ".join(f"{n} {s}" for s, n in metrics.apps.items() if n) or "none"))
    click.echo(
        f"containers {metrics.containers_running} running, {metrics.containers_pending} asked"
    )
    for name, capacity in metrics.capacity.items():
        used = metrics.allocated.get(name, 0.0)
        share = used / capacity if capacity else 0.0
        bar = "#" * round(share * 30)
        click.echo(f"{name:>14} [{bar:<30}] {used:,.0f} of {capacity:,.0f} ({share:.0%})")


def show_explanation(explanation: Explanation) -> None:
    """Why an application's stages are pending."""
    click.echo(f"{explanation.state}: {explanation.text}")
    table(
        ("stage", "pending", "may wait", "reason", "nodes"),
        [
            (stage.stage, stage.pending, stage.altruistic, reason, nodes)
            for stage in explanation.stages
            for reason, nodes in (stage.reasons or {"-": 0}).items()
        ],
    )
    if any(stage.altruistic for stage in explanation.stages):
        click.echo("may wait: asked ALTRUISTIC, these take what asks that must run leave over")


def show_containers(reports: Iterable[ContainerReport]) -> None:
    """The table of containers."""
    table(
        ("stage", "task", "attempt", "state", "node", "started s", "finished s"),
        [
            (r.stage, r.index, r.attempt, r.state, r.node_id, r.started_s, r.finished_s)
            for r in reports
        ],
    )
