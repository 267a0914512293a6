"""The pages and what they read: /cluster/... is one document, /api/... its data."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from weft.errors import WeftError
from weft.ids import format_app, format_attempt, format_container
from weft.job import Job
from weft.requests import ApplicationReport, ContainerReport, NodeReport, QueueReport
from weft.web.answers import RestError, answer
from weft.web.context import HISTORY, LISTENERS, PLANS, app_of, find_node, source
from weft.web.history import Span

routes = web.RouteTableDef()
STATIC = Path(__file__).parent / "static"
LIVE_S = 1.0  # a page is told of changes at most so often
QUIET_S = 15.0  # and that the connection lives at least so often
LISTENERS_MAX = 500


@routes.get("/")
async def home(request: web.Request) -> web.Response:
    """YARN's front page is /cluster."""
    raise web.HTTPFound("/cluster")


@routes.get("/cluster")
@routes.get("/cluster/{page:.*}")
async def page(request: web.Request) -> web.FileResponse:
    """The one document; its script shows what the path names."""
    return web.FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})


@routes.get("/api/overview")
async def overview(request: web.Request) -> web.Response:
    """Counts, the queues, and how full the cluster was lately."""
    read, history = source(request), request.app[HISTORY]
    metrics, root = await read.metrics(), await read.queues()
    data = {
        "scheduler": metrics.scheduler,
        "cluster": metrics.cluster_ts,
        "started_s": metrics.started_s,
        "now_s": metrics.now_s,
        "nodes": metrics.nodes,
        "apps": metrics.apps,
        "capacity": metrics.capacity,
        "allocated": metrics.allocated,
        "running": metrics.containers_running,
        "pending": metrics.containers_pending,
        "samples": list(history.samples),
        "queues": _queue(root),
        "recent": [_row(report) for report in (await read.apps())[-8:][::-1]],
    }
    return answer(request, data, root="overview")


def _row(report: ApplicationReport) -> dict[str, Any]:
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
        "pending": report.pending_containers,
        "submitted_s": round(report.submitted_s, 3),
        "started_s": round(report.started_s, 3),
        "finished_s": round(report.finished_s, 3),
    }


@routes.get("/api/apps")
async def apps(request: web.Request) -> web.Response:
    """Every application, the newest first."""
    read = source(request)
    rows = [_row(report) for report in reversed(await read.apps())]
    return answer(request, {"now_s": (await read.metrics()).now_s, "apps": rows}, root="apps")


def _span(span: Span, cluster_ts: int) -> list[Any]:
    return [
        span.stage, span.task, span.attempt, span.node,
        round(span.start_s, 3), round(span.end_s, 3), span.state,
        format_container(cluster_ts, span.container),
    ]  # fmt: skip


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
    """One application: its stages, when its tasks ran, and why it is pending."""
    read, number = source(request), await app_of(request)
    report, job = await read.app(number), await read.job(number)
    explained = await read.explain(number)
    reports: tuple[ContainerReport, ...] = await read.containers(number)
    spans = request.app[HISTORY].spans(number, reports, [s.name for s in job.stages])
    attempt, ts = report.attempt_id, report.cluster_ts
    data = {
        "now_s": (await read.metrics()).now_s,
        "app": _row(report)
        | {
            "attempt": format_attempt(ts, attempt) if attempt else "",
            "attempts": attempt & 0xFF,
            "master_node": report.master_node,
            "diagnostics": report.diagnostics,
            "allocated": report.allocated,
        },
        "stages": _stages(report, job),
        "explain": {
            "text": explained.text,
            "stages": [
                {
                    "stage": s.stage,
                    "pending": s.pending,
                    "reasons": s.reasons,
                    "altruistic": s.altruistic,
                }
                for s in explained.stages
            ],
        },
        "spans": [_span(span, ts) for span in spans],
    }
    return answer(request, data, root="application")


@routes.get("/api/apps/{app}/plan")
async def plan(request: web.Request) -> web.Response:
    """The preferred schedule, where one can be drawn; its machines are numbers."""
    read, number = source(request), await app_of(request)
    job, plans = await read.job(number), request.app[PLANS]
    try:
        made = await plans.draw(number, job, await read.nodes())
    except WeftError as error:  # no failure of the page: it says so in its place
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


def _node_row(report: NodeReport, types: Sequence[str]) -> list[Any]:
    return [
        report.node_id,
        report.state,
        report.rack,
        list(report.labels),
        report.containers,
        [report.capacity.get(name, 0.0) for name in types],
        [round(report.allocated.get(name, 0.0), 3) for name in types],
        [round(report.use.get(name, 0.0), 3) for name in types],
        round(report.last_heartbeat_s, 2),
        report.address,
    ]


@routes.get("/api/nodes")
async def nodes(request: web.Request) -> web.Response:
    """Every node, in short rows: there may be thousands."""
    read = source(request)
    reports = await read.nodes()
    types = list(dict.fromkeys(name for r in reports for name in r.capacity))
    rows = [_node_row(report, types) for report in reports]
    data = {"now_s": (await read.metrics()).now_s, "types": types, "nodes": rows}
    return answer(request, data, root="nodes")


@routes.get("/api/nodes/{node}")
async def node(request: web.Request) -> web.Response:
    """What runs on one node now, as far as it was watched."""
    found = await find_node(request, request.match_info["node"])
    history = request.app[HISTORY]
    names = {r.app_id: r for r in await source(request).apps()}
    rows = []
    for number, track in history.tracks.items():
        report = names.get(number)
        if report is None:
            continue
        for span in track.spans.values():
            if span.node == found.node_id and not span.end_s:
                row = [format_app(report.cluster_ts, number), report.name]
                rows.append(row + _span(span, report.cluster_ts))
    types = list(found.capacity)
    data = {
        "now_s": (await source(request).metrics()).now_s,
        "types": types,
        "row": _node_row(found, types),
        "containers": rows,
    }
    return answer(request, data, root="node")


def _queue(report: QueueReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "capacity": report.capacity,
        "max": report.max_capacity,
        "used": report.used,
        "state": report.state,
        "running": report.running_apps,
        "waiting": report.pending_apps,
        "pending": report.pending_containers,
        "deficit": report.deficit,
        "allocated": report.allocated,
        "children": [_queue(child) for child in report.children],
    }


@routes.get("/api/queues")
async def queues(request: web.Request) -> web.Response:
    """The tree of queues with shares and deficits."""
    read = source(request)
    metrics = await read.metrics()
    data = {
        "scheduler": metrics.scheduler,
        "capacity": metrics.capacity,
        "root": _queue(await read.queues()),
    }
    return answer(request, data, root="queues")


@routes.get("/api/live")
async def live(request: web.Request) -> web.StreamResponse:
    """Server-sent events: that something changed, so that pages read anew only then."""
    history = request.app[HISTORY]
    if request.app[LISTENERS]["count"] >= LISTENERS_MAX:
        raise RestError(503, "too many pages are open")
    request.app[LISTENERS]["count"] += 1
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    try:
        await response.prepare(request)
        told, quiet_s = -1, 0.0
        while True:
            if history.version != told:
                told, quiet_s = history.version, 0.0
                data = {
                    "version": told,
                    "reachable": history.reachable,
                    "problem": history.problem,
                }
                await response.write(f"data: {json.dumps(data)}\n\n".encode())
            elif quiet_s >= QUIET_S:
                quiet_s = 0.0
                await response.write(b": still here\n\n")
            await asyncio.sleep(LIVE_S)
            quiet_s += LIVE_S
    except (ConnectionResetError, asyncio.CancelledError):
        return response  # the page was closed, or this server ends
    finally:
        request.app[LISTENERS]["count"] -= 1
