"""What each listing shows people; programs get the data itself as JSON."""

import dataclasses
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from weft.client.calls import ENDED
from weft.client.tables import Column, say, table
from weft.client.terms import TERMS, USED, orders_of
from weft.client.text import (
    amounts,
    cut,
    duration,
    is_long,
    natural,
    number,
    pair,
    percent,
    plural,
    safe,
    work,
)
from weft.model.errors import InputError
from weft.model.ids import AppId, format_app, format_attempt
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Contender,
    Explanation,
    ManagerReport,
    NodeReport,
    QueueReport,
    QueuesSet,
    StageExplanation,
    Turn,
)

__all__ = ["Column", "safe", "table"]
BAR_COLUMNS = 30
# An application whose master has yet to report again; no state of the protocol.
RECOVERING = "RECOVERING"
# They are the headers of the tables.
APP_SORTS = (
    *("id", "name", "queue", "user", "state"),
    *("done", "tasks", "running", "allocated", "elapsed"),
)
NODE_SORTS = ("node", "state", "tasks", "vcores", "memory", "in use", "allocated", "rack")


def echo_json(value: object) -> None:
    """Print plain data as JSON on one line."""
    click.echo(json.dumps(value, default=_plain))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"cannot print {type(value).__name__} as JSON")


def app_data(report: ApplicationReport) -> dict[str, Any]:
    """Return a report as plain data, with YARN's id strings."""
    data = dataclasses.asdict(report)
    data["id"] = format_app(report.cluster_ts, report.app_id)
    attempt = report.attempt_id
    data["attempt"] = format_attempt(report.cluster_ts, attempt) if attempt else ""
    return data


def ended(report: ApplicationReport) -> bool:
    """Return whether an application is over."""
    return report.final_status != "UNDEFINED"


def state_of(report: ApplicationReport) -> str:
    """Return how an application ended, or where it stands.

    One that had a master is RECOVERING until another, or a manager that started anew, has its word:
    its tasks go on meanwhile, and YARN's state is ACCEPTED again.
    """
    if ended(report):
        return report.final_status
    if report.state == "ACCEPTED" and report.started_s > 0:
        return RECOVERING
    return report.state


def elapsed_s(report: ApplicationReport, now_s: float) -> float:
    """Return the time from submission to the end, or until now, s on the cluster's clock."""
    return max(0.0, (report.finished_s or now_s) - report.submitted_s)


def running_tasks(report: ApplicationReport) -> int:
    """Return how many containers run tasks: all but the master's own.

    The master's may be held for a moment after the application ended.
    """
    return max(0, report.running_containers - bool(report.master_node))


def progress_of(report: ApplicationReport) -> str:
    """Return progress in whole percent; only what is finished is 100%."""
    return percent(report.progress) if report.final_status != "SUCCEEDED" else "100%"


def sort_apps(
    reports: Iterable[ApplicationReport], key: str, now_s: float
) -> list[ApplicationReport]:
    """Return reports by a column, with `-` before its name the largest first; raises InputError.

    What is allocated is ordered by vcores, then by memory.
    """
    keys: dict[str, Any] = {
        "id": lambda r: r.app_id,
        "name": lambda r: natural(r.name),
        "queue": lambda r: natural(r.queue),
        "user": lambda r: natural(r.user),
        "state": state_of,
        "done": lambda r: r.progress,
        "tasks": lambda r: r.tasks,
        "running": running_tasks,
        "allocated": lambda r: [r.allocated.get(name, 0.0) for name in ("vcores", "memory_mb")],
        "elapsed": lambda r: elapsed_s(r, now_s),
    }
    return _sorted(reports, keys, key, APP_SORTS)


def sort_nodes(reports: Iterable[NodeReport], key: str) -> list[NodeReport]:
    """Return reports by a column, with `-` before its name the largest first; raises InputError."""
    keys: dict[str, Any] = {
        "node": lambda r: natural(r.node_id),
        "state": lambda r: r.state,
        "tasks": lambda r: r.containers,
        "vcores": lambda r: r.allocated.get("vcores", 0.0),
        "memory": lambda r: r.allocated.get("memory_mb", 0.0),
        "in use": lambda r: _most(r.use, r.capacity),
        "allocated": lambda r: _most(r.allocated, r.capacity),
        "rack": lambda r: natural(r.rack),
    }
    keys["name"] = keys["node"]
    named = sorted(reports, key=keys["node"])
    return named if key == "node" else _sorted(named, keys, key, NODE_SORTS)


def _most(held: dict[str, float], capacity: dict[str, float]) -> float:
    return max((held.get(n, 0.0) / c for n, c in capacity.items() if c), default=0.0)


# These names were taken before the headers were.
_EARLIER = {"progress": "done", "containers": "tasks", "used": "in use"}


def _sorted(rows: Iterable[Any], keys: dict[str, Any], key: str, known: Iterable[str]) -> list[Any]:
    name = key.removeprefix("-")
    name = _EARLIER.get(name, name)
    if name not in keys:
        names = ", ".join(known)
        raise InputError("--sort", f"unknown column {key!r}; known: {names} (-NAME: descending)")
    return sorted(rows, key=keys[name], reverse=key.startswith("-"))


def _last_of_id(text: str) -> str:
    return text.rpartition("_")[2]


def _last_of_path(text: str) -> str:
    return text.rpartition(".")[2]


def show_apps(reports: Iterable[ApplicationReport], now_s: float) -> None:
    """Print the table of applications; `now_s` on the cluster's clock, for those that run."""
    table(
        (
            Column("id", short=_last_of_id),
            Column("name", kind="name"),
            Column("queue", 4, kind="name", short=_last_of_path),
            Column("user", 6, kind="name"),
            Column("state", kind="state"),
            Column("done"),
            Column("tasks", 1),
            Column("running", 2),
            Column("allocated", 5),
            Column("elapsed"),
        ),
        [
            (
                format_app(r.cluster_ts, r.app_id),
                r.name,
                r.queue,
                r.user or "-",
                state_of(r),
                progress_of(r),
                f"{r.finished_tasks:,}/{r.tasks:,}",
                running_tasks(r) if r.running_containers or state_of(r) != RECOVERING else "-",
                amounts(r.allocated),
                duration(elapsed_s(r, now_s)),
            )
            for r in reports
        ],
    )


def time_of_day(at_s: float, now_s: float, scale: float) -> str:
    """Return when something was, in local time: `14:03:22`, with the date if not of today.

    `now_s` is the cluster's clock now, which runs `scale` times as fast as the wall clock.
    """
    at = datetime.now().astimezone() - timedelta(seconds=(now_s - at_s) / scale)
    today = at.date() == datetime.now().astimezone().date()
    return f"{at:%H:%M:%S}" if today else f"{at:%Y-%m-%d %H:%M:%S}"


def say_pace(scale: float) -> None:
    """Say by which clock durations are, where the cluster's has a pace of its own."""
    if scale not in (0.0, 1.0):
        say(
            f"clock x {scale:g}: durations are by the cluster's clock, times of day by yours",
            dim=True,
        )


def show_app(report: ApplicationReport, now_s: float, scale: float = 0.0) -> None:
    """Print one application with its stages; `scale`: of the cluster's clock, 0: not known."""
    show_apps([report], now_s)
    if scale > 0:
        ended = report.finished_s
        until = f", ended {time_of_day(ended, now_s, scale)}" if ended else ""
        say(f"submitted {time_of_day(report.submitted_s, now_s, scale)}{until}", dim=True)
        say_pace(scale)
    if report.diagnostics:
        click.echo()
        say(safe(report.diagnostics))
    click.echo()
    table(
        (
            Column("stage", kind="name"),
            Column("parents", 3, kind="name"),
            Column("tasks"),
            Column("asked", 1),
            Column("running"),
            Column("finished"),
            Column("failed", 2),
        ),
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
    """Print the table of nodes: what is allocated of what there is, and what is in use."""
    rows = list(reports)
    names = list(dict.fromkeys(name for r in rows for name in r.capacity))
    ill = any(r.health_report for r in rows)
    lacking: dict[str, list[str]] = {}
    for r in rows:
        if r.lacking:
            lacking.setdefault(r.lacking, []).append(r.node_id)
    table(
        (
            Column("node", kind="name"),
            Column("state", kind="state"),
            Column("tasks", 3),
            *((Column("health", 2),) if ill else ()),
            *(Column(_headed(name), 0 if i < 2 else 4 + i) for i, name in enumerate(names)),
            Column("in use", 2),
            Column("rack", 3, kind="name"),
            Column("labels", 4, kind="name"),
            Column("address", 30),
        ),
        [
            (
                r.node_id,
                r.state,
                r.containers,
                *((r.health_report or "-",) if ill else ()),
                *(pair(n, r.allocated.get(n, 0.0), r.capacity.get(n, 0.0)) for n in names),
                amounts(r.use),
                r.rack,
                ",".join(r.labels) or "-",
                r.address,
            )
            for r in rows
        ],
    )
    # A problem is shown once, however many nodes have it.
    for problem, found in lacking.items():
        where = found[0] if len(found) == 1 else f"{len(found)} nodes, {found[0]} among them"
        say(f"{where}: {problem}")


def show_managers(reports: Iterable[ManagerReport]) -> None:
    """Print the table of Resource Managers; below a router its members, by their numbers."""
    rows = [
        row
        for report in reports
        for row in (
            (report.address, report),
            *((f"  {place}: {one.address}", one) for place, one in enumerate(report.members, 1)),
        )
    ]
    table(
        (
            Column("manager", kind="name"),
            Column("state", kind="state"),
            Column("life"),
            Column("since", 2),
            Column("state in", 4, kind="name"),
            Column("reason", 3),
        ),
        [
            (
                name,
                r.standing,
                r.life or "-",
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(r.since_s)) if r.since_s else "-",
                r.store or "-",
                r.reason or "-",
            )
            for name, r in rows
        ],
    )


def _headed(name: str) -> str:
    return {"memory_mb": "memory"}.get(name, name)


def show_queues(root: QueueReport) -> None:
    """Print the tree of queues as a table; shares are of the whole cluster.

    Of several members a column has what each guarantees, as a part of that member.
    """
    of_members = bool(root.members)
    rows: list[tuple[object, ...]] = []

    def walk(queue: QueueReport, depth: int) -> None:
        rows.append(
            (
                "  " * depth + queue.name.rpartition(".")[2],
                percent(queue.capacity),
                *([" ".join(f"{at}: {part:.1%}" for at, part in queue.members)] * of_members),
                percent(queue.max_capacity),
                f"{queue.used:.1%}",
                queue.state,
                queue.running_apps,
                queue.pending_apps,
                queue.pending_containers,
                number(queue.deficit),
                amounts(queue.allocated),
            )
        )
        for child in queue.children:
            walk(child, depth + 1)

    walk(root, 0)
    table(
        (
            Column("queue", kind="name"),
            Column("capacity"),
            *([Column("in members", 2)] * of_members),
            Column("max", 3),
            Column("used"),
            Column("state", 5, kind="state"),
            Column("running"),
            Column("waiting", 1),
            Column("asked"),
            Column("deficit", 4),
            Column("allocated", 2),
        ),
        rows,
    )


def show_changes(answer: QueuesSet, dry_run: bool) -> None:
    """Print what changed in the tree of queues, and whom the new limits can never hold."""
    if answer.changes:
        columns = (
            Column("change"),
            Column("queue", kind="name"),
            Column("settings", 1, kind="words"),
        )
        table(columns, [(one.change, one.queue, one.text) for one in answer.changes])
    for app in answer.never_held:
        name = format_app(answer.cluster_ts, app.app_id)
        click.echo(f"waits without end: {name}: {safe(app.text)}", err=True)
    if not answer.changes:
        click.echo("the queues are as the file has them")
    elif dry_run:
        click.echo("nothing was changed: --dry-run")


def show_metrics(metrics: ClusterMetrics) -> None:
    """Print the cluster in a few lines; measured use beside what is allocated, where known."""
    click.echo(
        f"scheduler {safe(metrics.scheduler)}   nodes "
        + ", ".join(f"{n:,} {state}" for state, n in metrics.nodes.items() if n)
    )
    over = sum(n for state, n in metrics.apps.items() if state in ENDED)
    counts = [f"{n:,} {s}" for s, n in metrics.apps.items() if n and s not in ENDED]
    # A job that failed is FINISHED to a manager as well, so only that they ended can be said.
    click.echo("apps " + (", ".join([*counts, *([f"{over:,} ended"] if over else [])]) or "none"))
    click.echo(
        f"containers {metrics.containers_running:,} running, {metrics.containers_pending:,} asked"
    )
    use: dict[str, float] = getattr(metrics, "use", {})
    names = [_headed(safe(name)) for name in metrics.capacity]
    wide = min(14, max(map(len, names), default=0))
    for shown, (name, capacity) in zip(names, metrics.capacity.items(), strict=True):
        held = metrics.allocated.get(name, 0.0)
        share = max(0.0, held / capacity) if capacity else 0.0
        text = f"{pair(name, held, capacity)} ({percent(share)})"
        if name in use and capacity:
            text += f", in use {percent(use[name] / capacity)}"
        click.echo(f"{cut(shown, wide):>{wide}} [{bar(share)}] {text}")


def bar(share: float, width: int = BAR_COLUMNS) -> str:
    """Return a bar of `width` columns."""
    return f"{'#' * round(min(1.0, max(0.0, share)) * width):<{width}}"


def show_explanation(explanation: Explanation, started: Collection[str] = ()) -> None:
    """Print why an application's stages are pending; tasks of the `started` ones ran or run."""
    # Of what is over, the text says how it ended.
    over = explanation.state in ENDED
    say(safe(explanation.text) if over else f"{explanation.state}: {safe(explanation.text)}")
    rows: list[tuple[object, ...]] = []
    for stage in explanation.stages:
        for reason, nodes in (stage.reasons or {"-": 0}).items():
            rows.append((stage.stage, stage.pending, stage.altruistic, nodes or "-", reason))
    if not rows:
        return
    spare = any(stage.altruistic for stage in explanation.stages)
    columns = [
        Column("stage", kind="name"),
        Column("pending"),
        Column("may wait"),
        Column("nodes", 1),
        Column("why", kind="words"),
    ]
    if not spare:
        del columns[2]
        rows = [(*row[:2], *row[3:]) for row in rows]
    table(columns, rows)
    if spare:
        say("may wait: asked ALTRUISTIC, these take what asks that must run leave over")
    turns = [(stage, turn) for stage in explanation.stages for turn in stage.turns]
    # One unit for all of them, as they are compared.
    hours = any(is_long(turn.work) for _, turn in turns)
    for stage, turn in turns:
        begun = stage.stage in started
        _show_turn(explanation.app_id, stage, turn, explanation.now_s, hours, begun)
    names = dict.fromkeys(
        name
        for _, turn in turns
        for scores in (turn.scores, *(one.scores for one in turn.first))
        for name in scores
    )
    # Queues are compared before what is in them.
    meant = {"used of QUEUE": USED} if any(name.startswith("used of ") for name in names) else {}
    meant |= {name: TERMS[name] for name in names if name in TERMS}
    if told := [f"{name}: {meaning}" for name, meaning in meant.items()]:
        click.echo()
        for line in told:
            say(line, dim=True)


def _show_turn(
    app: AppId, stage: StageExplanation, turn: Turn, now_s: float, hours: bool, started: bool
) -> None:
    """Print who goes before a stage, by what, and when its turn comes."""
    click.echo()
    least = "at least " if turn.beyond else ""
    before = "it is next"
    if turn.asks:
        stages = plural(turn.asks, "stage")
        verb = "go" if turn.asks > 1 else "goes"
        containers = "container" if turn.containers == 1 else "containers"
        what = f"{turn.containers:,} {containers}, {work(turn.work, hours)}"
        before = f"{least}{stages} {verb} first ({what})"
    starts = "when it starts is not foreseen"
    if turn.start_s > 0:
        room = ", in room that they leave" if turn.asks else ""
        which = "first" if not started else "next"
        wait = duration(turn.start_s - now_s)
        lasts = ", if this order lasts" if turn.if_it_lasts else ""
        starts = f"its {which} container starts in about {wait}{room}{lasts}"
    say(f"{safe(stage.stage)}: {before}; {starts} (order on {safe(turn.node_id)})")
    rows: list[tuple[object, ...]] = [
        (place, _named(app, one), one.stage or "-", one.pending, _terms(one.scores))
        for place, one in enumerate(turn.first, 1)
    ]
    if not turn.beyond:
        rows.append((turn.asks + 1, "this one", stage.stage, stage.pending, _terms(turn.scores)))
    table(
        (
            Column("turn", 1),
            Column("application", kind="name"),
            Column("stage", kind="name"),
            Column("pending"),
            Column("by", kind="words"),
        ),
        rows,
    )
    for line in orders_of(app, turn):
        say(line)


def _named(app: AppId, one: Contender) -> str:
    """Return a contender by its number too: many jobs may have one name; this one's as its own."""
    if one.app_id == app:
        return "this one"
    return f"{one.app_id:04d} {one.name}" if one.name else "another user's"


def _terms(scores: Mapping[str, float]) -> str:
    """Return the terms of a place in the order, with so many digits that they can be checked."""
    # What remains of a sum that comes out even is 0.
    told = {name: 0.0 if abs(value) < 1e-12 else value for name, value in scores.items()}
    return ", ".join(f"{name} {value:.4g}" for name, value in told.items()) or "-"


def show_unlisted(report: ApplicationReport, listed: Sequence[ContainerReport]) -> None:
    """Say how many finished tasks a table of containers leaves out, if any."""
    finished = {(one.stage, one.index) for one in listed if one.stage and one.state == "SUCCEEDED"}
    if (left := report.finished_tasks - len(finished)) > 0:
        tasks = "finished task is" if left == 1 else "finished tasks are"
        say(
            f"{left:,} more {tasks} not listed: the manager lists what ended last, since its own "
            "start; the job's page has all that it received",
            dim=True,
        )


def show_containers(reports: Sequence[ContainerReport], began_s: float, now_s: float) -> None:
    """Print the table of containers; times since the application was submitted at `began_s`."""
    table(
        (
            Column("stage", kind="name"),
            Column("task"),
            Column("attempt", 3),
            Column("state", kind="state"),
            Column("node", kind="name"),
            Column("after"),
            Column("ran"),
        ),
        [
            (
                r.stage or "(master)",
                r.index if r.index >= 0 else "-",
                r.attempt if r.index >= 0 else "-",
                r.state,
                r.node_id,
                duration(r.started_s - began_s),
                duration((r.finished_s or now_s) - r.started_s),
            )
            for r in reports
        ],
    )
