"""What the pages of applications and stages read: /api/apps/..."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aiohttp import web

from weft.client.terms import orders_of
from weft.model.errors import WeftError
from weft.model.ids import AppId, format_app, format_attempt, format_container
from weft.model.job import Job
from weft.protocol.requests import ApplicationReport, Explanation, Turn
from weft.web.answers import RestError, answer
from weft.web.context import HISTORY, PLANS, app_of, source
from weft.web.history import Span

routes = web.RouteTableDef()
# A chart with more spans is thinned out evenly.
CHART_SPANS_MAX = 5_000
# A stage's page shows the newest tries.
STAGE_TRIES_MAX = 20_000


def app_row(report: ApplicationReport) -> dict[str, Any]:
    """Return an application as lists of them show it."""
    return {
        "id": format_app(report.cluster_ts, report.app_id),
        "number": report.app_id,
        "name": report.name,
        "user": report.user,
        "queue": report.queue,
        "priority": report.priority,
        "state": report.state,
        "final": report.final_status,
        "progress": round(report.progress, 4),
        "tasks": report.tasks,
        "finished": report.finished_tasks,
        "running": report.running_containers,
        "preempted": report.preempted_containers,
        "pending": report.pending_containers,
        "submitted_s": round(report.submitted_s, 3),
        "started_s": round(report.started_s, 3),
        "finished_s": round(report.finished_s, 3),
    }


@routes.get("/api/apps")
async def apps(request: web.Request) -> web.Response:
    """Answer every application, the newest first."""
    read = source(request)
    rows = [app_row(report) for report in reversed(await read.apps())]
    return answer(request, {**read.clock((await read.metrics()).now_s), "apps": rows}, root="apps")


def span_row(span: Span, cluster_ts: int) -> list[Any]:
    """Return a container for the pages: [stage, task, attempt, node, start, end, state, id]."""
    return [
        span.stage,
        span.task,
        span.attempt,
        span.node,
        round(span.start_s, 3),
        round(span.end_s, 3),
        span.state,
        format_container(cluster_ts, span.container),
    ]


def writes_log(job: Job, stage: int) -> bool:
    """Return whether tasks of a stage, or the master (-1), run a command that may write a log.

    Where no stage has one, tasks are emulated or sleep, and Weft's master has no process.
    """
    if stage < 0:
        return job.master is not None or any(one.command for one in job.stages)
    return stage < len(job.stages) and bool(job.stages[stage].command)


async def _spans(request: web.Request, report: ApplicationReport) -> tuple[list[Span], bool]:
    """Return what is known of an application's containers, and whether that is all of them."""
    names = [stage.name for stage in report.stages]
    history = request.app[HISTORY]
    reports = await source(request).containers(report.app_id)
    spans = history.spans(report.app_id, reports, names)
    track = history.tracks.get(report.app_id)
    whole = track is not None and track.is_whole(report.submitted_s)
    seen = {(s.stage, s.task) for s in spans if s.state == "SUCCEEDED" and s.stage >= 0}
    return spans, whole or len(seen) >= report.finished_tasks


def _explained(explained: Explanation) -> dict[str, Any]:
    return {
        "text": explained.text,
        "stages": [
            {
                "stage": s.stage,
                "pending": s.pending,
                "reasons": s.reasons,
                "altruistic": s.altruistic,
                "turn": _turn(explained.app_id, s.turns[0], explained.now_s) if s.turns else None,
            }
            for s in explained.stages
        ],
    }


def _turn(app: AppId, turn: Turn, now_s: float) -> dict[str, Any]:
    """Return where a stage stands; `starts_in_s` is None where that is not known."""
    shown = asdict(turn)
    start_s = shown.pop("start_s")
    for one in shown["first"]:
        one["own"] = one["app_id"] == app
    return shown | {
        "starts_in_s": max(0.0, start_s - now_s) if start_s > 0 else None,
        "orders": orders_of(app, turn),
    }


def _stages(report: ApplicationReport, job: Job) -> list[dict[str, Any]]:
    known = {stage.name: stage for stage in job.stages}
    return [
        {
            "name": stage.name,
            "tasks": stage.tasks,
            "pending": stage.pending,
            "running": stage.running,
            "finished": stage.finished,
            "failed": stage.failed_attempts,
            "parents": [{"stage": name, "edge": edge} for name, edge in stage.parents],
            "duration_s": known[stage.name].duration_s if stage.name in known else 0.0,
            "demand": dict(known[stage.name].demand) if stage.name in known else {},
        }
        for stage in report.stages
    ]


@routes.get("/api/apps/{app}")
async def app(request: web.Request) -> web.Response:
    """Answer one application: its stages, when its tasks ran, and why it is pending."""
    read, number = source(request), await app_of(request)
    report, job = await read.app(number), await read.job(number)
    spans, whole = await _spans(request, report)
    tasks = [span for span in spans if span.stage >= 0]
    shown = thinned(tasks, CHART_SPANS_MAX)
    attempt, ts = report.attempt_id, report.cluster_ts
    data = {
        **read.clock((await read.metrics()).now_s),
        "app": app_row(report)
        | {
            "attempt": format_attempt(ts, attempt) if attempt else "",
            "attempts": attempt & 0xFF,
            "master_node": report.master_node,
            "diagnostics": report.diagnostics,
            "allocated": report.allocated,
            "held_s": report.held_s,
        },
        "stages": _stages(report, job),
        "explain": _explained(await read.explain(number)),
        "spans": [span_row(span, ts) for span in shown],
        "spans_known": len(tasks),
        "spans_whole": whole,
    }
    return answer(request, data, root="application")


def thinned(spans: Sequence[Span], most: int) -> Sequence[Span]:
    """Return at most `most` of the spans, evenly over their order."""
    if len(spans) <= most:
        return spans
    return [spans[i * len(spans) // most] for i in range(most)]


@routes.get("/api/apps/{app}/stages/{stage}")
async def stage(request: web.Request) -> web.Response:
    """Answer one stage, by its position from 0: every try of its tasks, and why it waits."""
    read, number = source(request), await app_of(request)
    report, job = await read.app(number), await read.job(number)
    text = request.match_info["stage"]
    position = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if not 0 <= position < len(report.stages):
        raise RestError(404, f"{report.name} has no stage number {text}")
    spans, whole = await _spans(request, report)
    mine = [span for span in spans if span.stage == position]
    ts, own = report.cluster_ts, report.stages[position].name
    explained = _explained(await read.explain(number))
    known = _stages(report, job)
    data = {
        **read.clock((await read.metrics()).now_s),
        "app": app_row(report),
        "position": position,
        "stage": known[position],
        "children": [s["name"] for s in known if any(p["stage"] == own for p in s["parents"])],
        "positions": {s["name"]: i for i, s in enumerate(known)},
        "explain": [one for one in explained["stages"] if one["stage"] == own],
        "state": explained["text"],
        "tries": [_try(span, ts) for span in mine[-STAGE_TRIES_MAX:]],
        "tries_known": len(mine),
        "logs": writes_log(job, position),
        "whole": whole,
    }
    return answer(request, data, root="stage")


def _try(span: Span, cluster_ts: int) -> list[Any]:
    return [
        *span_row(span, cluster_ts)[1:],
        span.exit_code,
        round(span.run_s, 3),
        span.message,
    ]


@routes.get("/api/apps/{app}/plan")
async def plan(request: web.Request) -> web.Response:
    """Answer the preferred schedule, where one can be drawn; its machines are numbers."""
    read, number = source(request), await app_of(request)
    job, plans = await read.job(number), request.app[PLANS]
    try:
        made = await plans.draw(number, job, await read.nodes())
    # The page stays up and says so in the plan's place.
    except WeftError as error:
        return answer(request, {"problem": str(error)}, root="plan")
    position = {stage.name: i for i, stage in enumerate(job.stages)}
    rows = [
        [position[t["stage"]], t["index"], t["machine"], t["start_s"], t["end_s"]]
        for t in made["tasks"]
    ]
    bounds = made.get("bounds") or {}
    data = {
        "planner": made["planner"],
        "makespan_s": made["makespan_s"],
        "bound_s": bounds.get("new_lb_s", 0.0),
        "tasks": rows,
    }
    return answer(request, data, root="plan")
