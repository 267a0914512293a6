"""/ws/v1/node: what YARN's Node Managers let be read, told from what the manager knows.

One server stands for every node: `/node/NAME/ws/v1/node/...` speaks for that one, and the paths
without a name for the node of the settings (or `?node=NAME`), the first that runs otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from weft.client.api import ENDED
from weft.model.errors import InputError
from weft.model.ids import AppId, app_of_container, format_app, format_container
from weft.protocol.requests import ApplicationReport, ContainerReport, NodeReport
from weft.web import yarn
from weft.web.answers import RestError, answer
from weft.web.context import SETTINGS, app_of, container_of, face, find_node, source

LOG_FILES = ["stdout", "stderr"]
# A log is anybody's text: nothing in it is a script, whatever a browser takes it for.
LOG_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept",
}
LOG_HEAD = b"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="color-scheme" content="light dark"><title>Log</title>
<link rel="icon" type="image/svg+xml" href="/static/icon.svg"><pre>"""
APP_STATES = (
    "NEW",
    "INITING",
    "RUNNING",
    "FINISHING_CONTAINERS_WAIT",
    "APPLICATION_RESOURCES_CLEANINGUP",
    "FINISHED",
)
ASKED_AT_ONCE = 16
Found = tuple[ApplicationReport, list[ContainerReport]]


async def _node(request: web.Request) -> NodeReport:
    name = request.match_info.get("node") or request.query.get("node")
    name = name or request.app[SETTINGS].node
    if name:
        return await find_node(request, name)
    for report in await source(request).nodes():
        if report.state == "RUNNING":
            return report
    raise RestError(404, "no node runs")


async def _held(request: web.Request, node: NodeReport, only: AppId = 0) -> list[Found]:
    """Return the live applications with containers on a node."""
    read, gate = source(request), asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(report: ApplicationReport) -> Found:
        async with gate:
            reports = await read.containers(report.app_id)
        return report, [c for c in reports if c.node_id == node.node_id and not c.finished_s]

    alive = [r for r in await read.apps() if r.state not in ENDED and only in (0, r.app_id)]
    return [found for found in await asyncio.gather(*map(ask, alive)) if found[1]]


async def info(request: web.Request) -> web.Response:
    """Answer the node's identity, size and health."""
    report = await _node(request)
    data = {
        "id": yarn.node_key(report),
        "nodeHostName": report.node_id,
        "totalVmemAllocatedContainersMB": yarn.memory(report.capacity),
        "totalPmemAllocatedContainersMB": yarn.memory(report.capacity),
        "totalVCoresAllocatedContainers": yarn.cores(report.capacity),
        "vmemCheckEnabled": False,
        "pmemCheckEnabled": True,
        "lastNodeUpdateTime": source(request).unix_ms(report.last_heartbeat_s),
        # The manager does not keep the start of a node.
        "nmStartupTime": 0,
        "healthReport": report.health_report
        or ("" if report.state == "RUNNING" else f"the node is {report.state}"),
        "nodeHealthy": report.state in ("RUNNING", "DECOMMISSIONING"),
        "nodeManagerVersion": yarn.VERSION,
        "nodeManagerBuildVersion": yarn.BUILD,
        "nodeManagerVersionBuiltOn": "",
        "hadoopVersion": yarn.HADOOP_VERSION,
        "hadoopBuildVersion": yarn.BUILD,
        "hadoopVersionBuiltOn": "",
    }
    return answer(request, {"nodeInfo": data})


def _app(found: Found) -> dict[str, Any]:
    report, containers = found
    ids = [format_container(report.cluster_ts, c.container_id) for c in containers]
    return {
        "id": format_app(report.cluster_ts, report.app_id),
        "user": report.user,
        "state": "RUNNING",
        "containerids": ids,
    }


async def apps(request: web.Request) -> web.Response:
    """Answer the applications that hold containers on the node."""
    state, user = request.query.get("state", "").upper(), request.query.get("user")
    if state and state not in APP_STATES:
        listed = " ".join(APP_STATES)
        raise RestError(400, f"Error: Invalid application state {state}: one of {listed}")
    held = await _held(request, await _node(request)) if state in ("", "RUNNING") else []
    rows = [_app(found) for found in held if user in (None, found[0].user)]
    return answer(request, {"apps": {"app": rows}})


async def app(request: web.Request) -> web.Response:
    """Answer one application on the node."""
    number, node = await app_of(request), await _node(request)
    report = await source(request).app(number)
    held = await _held(request, node, number)
    data = _app(held[0] if held else (report, []))
    if not held:
        data["state"] = "FINISHED"
        del data["containerids"]
    return answer(request, {"app": data})


async def _container(request: web.Request, found: Found, one: ContainerReport) -> dict[str, Any]:
    report, own = found[0], face(request)
    job = await source(request).job(report.app_id)
    seen = yarn.container(own, one, report.cluster_ts, report.user, job, one.started_s)
    return {
        "id": seen["containerId"],
        "state": "RUNNING" if not one.finished_s else "DONE",
        "exitCode": seen["containerExitStatus"],
        "diagnostics": seen["diagnosticsInfo"],
        "user": report.user,
        "totalMemoryNeededMB": seen["allocatedMB"],
        "totalVCoresNeeded": seen["allocatedVCores"],
        "containerLogsLink": seen["logUrl"],
        "nodeId": one.node_id,
        "executionType": "GUARANTEED",
        "containerLogFiles": LOG_FILES,
    }


async def containers(request: web.Request) -> web.Response:
    """Answer the containers that the node holds."""
    held = await _held(request, await _node(request))
    rows = [await _container(request, found, one) for found in held for one in found[1]]
    return answer(request, {"containers": {"container": rows}})


async def _find(request: web.Request, wanted: int) -> tuple[ApplicationReport, ContainerReport]:
    number = app_of_container(wanted)
    read = source(request)
    for one in await read.containers(number):
        if one.container_id == wanted:
            return await read.app(number), one
    raise RestError(404, f"container with id, {request.match_info['container']}, not found")


async def container(request: web.Request) -> web.Response:
    """Answer one container, wherever it is: its id says enough."""
    report, one = await _find(request, await container_of(request))
    return answer(request, {"container": await _container(request, (report, [one]), one)})


async def auxiliary(request: web.Request) -> web.Response:
    """Answer that there are none."""
    return answer(request, {"services": []}, root="services")


async def refuse_auxiliary(request: web.Request) -> web.Response:
    """Refuse: services beside the node manager are not its business here."""
    raise RestError(400, "Auxiliary services manager is not enabled")


async def logs(request: web.Request) -> web.StreamResponse:
    """Answer what a container's command wrote: both streams in turn, or the one of the path.

    A browser gets a page of it, which follows the reader's theme; programs get the text.
    """
    from weft.wire.client import read_log

    _, one = await _find(request, await container_of(request))
    wanted = request.match_info.get("file", "")
    if wanted and wanted not in LOG_FILES:
        raise RestError(404, f"no such log: {wanted}; there are {' and '.join(LOG_FILES)}")
    as_page = "text/html" in request.headers.get("Accept", "")
    kind = "text/html" if as_page else "text/plain"
    headers = {"Content-Type": f"{kind}; charset=utf-8", **LOG_HEADERS}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)

    async def write(data: bytes) -> None:
        if as_page:
            # Both are one byte in UTF-8, so it does not matter where a chunk ends.
            data = data.replace(b"&", b"&amp;").replace(b"<", b"&lt;")
        await response.write(data)

    if as_page:
        await response.write(LOG_HEAD)
    for stream in [wanted] if wanted else LOG_FILES:
        if not wanted:
            await write(f"==> {stream} <==\n".encode())
        try:
            async for chunk, _ in read_log(one.node_address, one.node_id, one.container_id, stream):
                await write(chunk)
        # An emulated task writes nothing.
        except InputError as error:
            await write(f"{error.problem}\n".encode())
    await response.write_eof()
    return response


async def to_page(request: web.Request) -> web.Response:
    """Redirect from what YARN calls a node's HTTP address to its page."""
    raise web.HTTPFound(f"/cluster/nodes?q={request.match_info['node']}")


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_READS: dict[str, Handler] = {
    "": info,
    "/": info,
    "/info": info,
    "/apps": apps,
    "/apps/{app}": app,
    "/containers": containers,
    "/containers/{container}": container,
    "/auxiliaryservices": auxiliary,
}


def routes() -> list[web.RouteDef]:
    """Return every path twice: for the settings' node, and for the one that the path names."""
    found = []
    for base in ("/ws/v1/node", "/node/{node}/ws/v1/node"):
        found += [web.get(base + path, handler) for path, handler in _READS.items()]
        found.append(web.put(f"{base}/auxiliaryservices", refuse_auxiliary))
    log = "/node/{node}/containerlogs/{container}/{user}"
    return [
        *found,
        web.get(log, logs),
        web.get(log + "/{file}", logs),
        # Foreign masters link to logs so.
        web.get("/node/containerlogs/{container}/{user}", logs),
        web.get("/node/containerlogs/{container}/{user}/{file}", logs),
        web.get("/node/{node}", to_page),
    ]
