"""The pages and what they read: /cluster/... is one document, /api/... its data."""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web

from weft.client.api import DRAIN_S, ENDED, RefusedError
from weft.client.facts import app_of
from weft.model.errors import WeftError
from weft.model.ids import AppId, format_app
from weft.model.job import Job
from weft.model.queues import queues_from_dict, queues_to_dict
from weft.protocol.requests import ApplicationReport, NodeReport, QueueReport
from weft.web.answers import RestError, answer, read_body
from weft.web.app_routes import app_row, span_row, writes_log
from weft.web.context import HISTORY, LIVE_STREAMS, PLAYED, USER, find_node, source
from weft.web.facts import told
from weft.web.history import Span
from weft.web.series import RINGS
from weft.web.source import Source

routes = web.RouteTableDef()
STATIC = Path(__file__).parent / "static"
# A page is told of changes at most so often, and that the connection lives at least so often.
EVENT_INTERVAL_S = 1.0
KEEPALIVE_S = 15.0
LISTENERS_MAX = 500
# The page of a node asks for tasks of so many applications on it, and for so many masters.
NODE_APPS_MAX = 50
PAGE = re.compile(
    r"(apps|nodes|queues|events|settings|scheduler|app/[^/]+(/stage/\d+)?|node/[^/]+)?/?"
)

SHORT = re.compile(r"app/0*([1-9]\d{0,8})((?:/stage/\d+)?)/?")


@routes.get("/")
async def home(request: web.Request) -> web.Response:
    """Redirect to YARN's front page, /cluster; of a run that is played to the player."""
    raise web.HTTPFound("/cluster/play" if request.app[PLAYED] else "/cluster")


@routes.get("/cluster")
@routes.get("/cluster/{page:.*}")
async def page(request: web.Request) -> web.StreamResponse:
    """Answer the one document; its script shows what the path names, or that it names nothing."""
    name, played = request.match_info.get("page", ""), request.app[PLAYED]
    if short := SHORT.fullmatch(name):
        # The command line takes an application's number alone, so who knows that tries it here.
        whole = format_app((await source(request).metrics()).cluster_ts, int(short[1]))
        raise web.HTTPFound(f"/cluster/app/{whole}{short[2]}")
    known = PAGE.fullmatch(name) is not None or (played and name == "play")
    headers, status = {"Cache-Control": "no-cache"}, 200 if known else 404
    if played:
        text = _played_document()
        return web.Response(text=text, status=status, headers=headers, content_type="text/html")
    return web.FileResponse(STATIC / "index.html", status=status, headers=headers)


@cache
def _played_document() -> str:
    """Return the document of a player: its script finds out by the mark that it has one."""
    text = (STATIC / "index.html").read_text("utf-8")
    style = '<link rel="stylesheet" href="/static/play.css">\n</head>'
    return text.replace("<html ", "<html data-played ", 1).replace("</head>", style, 1)


def _ring(request: web.Request) -> int:
    text = request.query.get("ring", "0")
    if text not in [str(number) for number in range(len(RINGS))]:
        raise RestError(400, f"ring: expected 0 to {len(RINGS) - 1}, got {text}")
    return int(text)


def _rings(request: web.Request) -> list[float]:
    """Return how far each ring of samples reaches back, s on the cluster's clock."""
    return [ring.span_s * source(request).time_scale for ring in RINGS]


@routes.get("/api/overview")
async def overview(request: web.Request) -> web.Response:
    """Answer counts, the queues, and how full the cluster was lately."""
    read, history = source(request), request.app[HISTORY]
    metrics, root = await read.metrics(), await read.queues()
    data = {
        "scheduler": metrics.scheduler,
        "cluster": metrics.cluster_ts,
        "started_s": metrics.started_s,
        **read.clock(metrics.now_s),
        "nodes": metrics.nodes,
        "apps": metrics.apps,
        "capacity": metrics.capacity,
        "allocated": metrics.allocated,
        "running": metrics.containers_running,
        "pending": metrics.containers_pending,
        "use": metrics.use,
        "samples": list(history.series.samples(_ring(request))),
        "rings": _rings(request),
        "queues": _queue(root),
        "recent": [app_row(report) for report in (await read.apps())[-8:][::-1]],
    }
    return answer(request, data, root="overview")


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
        report.health_report,
        report.lacking,
    ]


@routes.get("/api/nodes")
async def nodes(request: web.Request) -> web.Response:
    """Answer every node, in short rows: there may be thousands."""
    read = source(request)
    reports = await read.nodes()
    types = list(dict.fromkeys(name for r in reports for name in r.capacity))
    rows = [_node_row(report, types) for report in reports]
    data = {**read.clock((await read.metrics()).now_s), "types": types, "nodes": rows}
    return answer(request, data, root="nodes")


@routes.get("/api/nodes/{node}")
async def node(request: web.Request) -> web.Response:
    """Answer what runs on one node now, as far as it was watched; the masters are asked for."""
    found, read = await find_node(request, request.match_info["node"]), source(request)
    history = request.app[HISTORY]
    names = {r.app_id: r for r in await read.apps()}
    rows: dict[int, list[Any]] = {}
    asked = 0
    for number, track in list(history.tracks.items()):
        report = names.get(number)
        if report is None or report.state in ENDED:
            continue
        spans = [s for s in track.spans.values() if s.node == found.node_id and not s.end_s]
        if any(s.task < 0 <= s.stage for s in spans) and asked < NODE_APPS_MAX:
            # Facts tell of a task when it ends, reports since it began; a span keeps its number.
            asked += 1
            history.spans(number, await read.containers(number), ())
        job = await _job(read, number) if spans else None
        rows |= {s.container: _held_row(report, s, job) for s in spans}
    mastered = [
        r for r in names.values() if r.master_node == found.node_id and r.state not in ENDED
    ]
    for report in mastered[:NODE_APPS_MAX]:
        for span in history.spans(report.app_id, await read.containers(report.app_id), ()):
            if span.stage < 0 and span.node == found.node_id and not span.end_s:
                job = await _job(read, report.app_id)
                rows.setdefault(span.container, _held_row(report, span, job))
    types = list(found.capacity)
    data = {
        **read.clock((await read.metrics()).now_s),
        "types": types,
        "row": _node_row(found, types),
        "containers": list(rows.values()),
    }
    return answer(request, data, root="node")


async def _job(read: Source, app: AppId) -> Job | None:
    """Return an application's job, None where it was forgotten meanwhile."""
    try:
        return await read.job(app)
    except WeftError:
        return None


def _held_row(report: ApplicationReport, span: Span, job: Job | None) -> list[Any]:
    stages = () if job is None else job.stages
    return [
        format_app(report.cluster_ts, report.app_id),
        report.name,
        stages[span.stage].name if 0 <= span.stage < len(stages) else "",
        *span_row(span, report.cluster_ts),
        job is not None and writes_log(job, span.stage),
    ]


@routes.post("/api/nodes/{node}/decommission")
async def decommission(request: web.Request) -> web.Response:
    """Take a node out of service: `timeout_s` on the cluster's clock, below 0 for ever."""
    found, body = await find_node(request, request.match_info["node"]), await read_body(request)
    timeout_s = body.get("timeout_s", DRAIN_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise RestError(400, f"timeout_s: expected seconds, got {timeout_s!r}")
    state = await source(request).client.decommission(found.node_id, float(timeout_s))
    source(request).forget()
    return answer(request, {"state": state}, root="nodeState")


@routes.post("/api/nodes/{node}/recommission")
async def recommission(request: web.Request) -> web.Response:
    """Put a node back into service."""
    found, _ = await find_node(request, request.match_info["node"]), await read_body(request)
    state = await source(request).client.recommission(found.node_id)
    source(request).forget()
    return answer(request, {"state": state}, root="nodeState")


@routes.put("/api/queues")
async def set_queues(request: web.Request) -> web.Response:
    """Set the queues that a cluster file's `queues` would name; `?dry_run=1` only tells."""
    wanted = queues_from_dict(await read_body(request))
    dry_run = request.query.get("dry_run", "") not in ("", "0", "false")
    done = await source(request).client.set_queues(wanted, dry_run=dry_run)
    source(request).forget()
    data = {
        "changes": [asdict(one) for one in done.changes],
        "neverHeld": [
            {**asdict(one), "app_id": format_app(done.cluster_ts, one.app_id)}
            for one in done.never_held
        ],
    }
    return answer(request, data, root="queuesSet")


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
        "most": report.max_applications,
        "children": [_queue(child) for child in report.children],
    }


@routes.get("/api/queues")
async def queues(request: web.Request) -> web.Response:
    """Answer the tree of queues with shares and deficits."""
    read = source(request)
    metrics = await read.metrics()
    data = {
        "scheduler": metrics.scheduler,
        "capacity": metrics.capacity,
        "root": _queue(await read.queues()),
        **read.clock(metrics.now_s),
        "samples": [
            {"now_s": one["now_s"], "queues": one["queues"]}
            for one in request.app[HISTORY].series.samples(_ring(request))
        ],
        "rings": _rings(request),
    }
    return answer(request, data, root="queues")


@routes.get("/api/queues/tree")
async def queue_tree(request: web.Request) -> web.Response:
    """Answer the tree of queues as `PUT /api/queues` takes it."""
    tree = queues_to_dict(await source(request).client.queue_tree())
    return answer(request, tree, root="queues")


@routes.get("/api/events")
async def events(request: web.Request) -> web.Response:
    """Answer the newest facts of the manager that were heard here, newest first."""
    if request.get(USER):
        raise RestError(403, "events are shown to operators of the cluster")
    read = source(request)
    metrics = await read.metrics()
    names = {r.app_id: r.name for r in await read.apps()}
    facts = request.app[HISTORY].facts
    stages: dict[AppId, list[str]] = {}
    for app in {app_of(fact) for _, fact in facts if fact.get("stage", -1) != -1} & names.keys():
        # The manager keeps the jobs of the newest only.
        with suppress(RefusedError):
            stages[app] = [stage.name for stage in (await read.job(app)).stages]
    ts, types = metrics.cluster_ts, tuple(metrics.capacity)
    rows = [[number, *told(fact, ts, types, names, stages)] for number, fact in reversed(facts)]
    return answer(request, {**read.clock(metrics.now_s), "events": rows}, root="events")


@routes.get("/api/settings")
async def settings(request: web.Request) -> web.Response:
    """Answer what the manager runs with."""
    read = source(request)
    metrics, standing = await read.metrics(), await read.manager()
    data = {
        **read.clock(metrics.now_s),
        "started_s": metrics.started_s,
        "scheduler": metrics.scheduler,
        "address": standing.address,
        "standing": standing.standing,
        "store": standing.store,
        "settings": [asdict(one) for one in await read.client.settings()],
    }
    return answer(request, data, root="settings")


@routes.get("/api/live")
async def live(request: web.Request) -> web.StreamResponse:
    """Send server-sent events that something changed, so that pages read anew only then."""
    history = request.app[HISTORY]
    if request.app[LIVE_STREAMS]["count"] >= LISTENERS_MAX:
        raise RestError(503, "too many pages are open")
    request.app[LIVE_STREAMS]["count"] += 1
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
            elif quiet_s >= KEEPALIVE_S:
                quiet_s = 0.0
                await response.write(b": still here\n\n")
            await asyncio.sleep(EVENT_INTERVAL_S)
            quiet_s += EVENT_INTERVAL_S
    # The page was closed, or this server ends.
    except (ConnectionResetError, asyncio.CancelledError):
        return response
    finally:
        request.app[LIVE_STREAMS]["count"] -= 1
