"""What every route finds in the application, and how it reads its part of the path."""

import re

from aiohttp import web

from weft.model.ids import (
    ATTEMPT_BITS,
    CONTAINER_BITS,
    DIGITS,
    AppId,
    AttemptId,
    ContainerId,
    attempt_id,
    container_id,
)
from weft.protocol.requests import NodeReport
from weft.runtime.role_settings import WebSettings
from weft.web.answers import RestError
from weft.web.history import History
from weft.web.plans import Plans
from weft.web.source import Source
from weft.web.yarn import Face

SOURCE = web.AppKey("source", Source)
# A request has the reads of whoever asks here, where visitors are known.
VISITOR = "visitor"
# A request has the name of whoever asks here, where visitors are known; empty: an operator.
USER = "user"
# The same with the token that was shown, as `weft.web.visitors` knows visitors.
WHO = "who"
HISTORY = web.AppKey("history", History)
SETTINGS = web.AppKey("settings", WebSettings)
PLANS = web.AppKey("plans", Plans)
MISSING_HEADER = "Weft-Missing-Members"
# The pages show a finished run, at any moment of it.
PLAYED = web.AppKey("played", bool)
LIVE_STREAMS: "web.AppKey[dict[str, int]]" = web.AppKey("listeners", dict)

_APP = re.compile(rf"application_({DIGITS})_({DIGITS})")
_ATTEMPT = re.compile(rf"appattempt_({DIGITS})_({DIGITS})_({DIGITS})")
_CONTAINER = re.compile(rf"container_(?:e{DIGITS}_)?({DIGITS})_({DIGITS})_({DIGITS})_({DIGITS})")


def source(request: web.Request) -> Source:
    """Return the reads of the Resource Manager, in the name of whoever asks."""
    found: Source = request.get(VISITOR) or request.app[SOURCE]
    return found


def lacking(request: web.Request) -> dict[str, str]:
    """Return the header that names the members whose part the answer may lack."""
    missing = source(request).missing
    return {MISSING_HEADER: ", ".join(map(str, missing))} if missing else {}


def face(request: web.Request) -> Face:
    """Return the clock and this server's address as the client wrote it."""
    return Face(source(request), f"{request.scheme}://{request.host}")


async def app_of(request: web.Request) -> AppId:
    """Return the application that the path names; 404 for one of another cluster."""
    return await parse_app(request, request.match_info["app"])


async def parse_app(request: web.Request, text: str) -> AppId:
    """Read an application id strictly: it names its cluster too."""
    match = _APP.fullmatch(text)
    if match is None:
        valid = "The valid ApplicationId should start with prefix application"
        raise RestError(400, f"Invalid ApplicationId prefix: {text}. {valid}")
    await _same_cluster(request, int(match[1]), f"app with id: {text} not found")
    number = int(match[2])
    if not 0 < number < 1 << (63 - CONTAINER_BITS - ATTEMPT_BITS):
        raise RestError(404, f"app with id: {text} not found")
    return number


async def attempt_of(request: web.Request) -> AttemptId:
    """Return the attempt that the path names, by its whole id or its number."""
    app, text = await app_of(request), request.match_info["attempt"]
    if re.fullmatch(DIGITS, text) and 0 < int(text) < 1 << ATTEMPT_BITS:
        return attempt_id(app, int(text))
    match = _ATTEMPT.fullmatch(text)
    if match is None:
        raise RestError(400, f"java.lang.IllegalArgumentException: Invalid AppAttemptId: {text}")
    await _same_cluster(request, int(match[1]), f"app attempt with id: {text} not found")
    if int(match[2]) != app or not 0 < int(match[3]) < 1 << ATTEMPT_BITS:
        raise RestError(404, f"app attempt with id: {text} not found")
    return attempt_id(app, int(match[3]))


async def container_of(request: web.Request) -> ContainerId:
    """Return the container that the path names."""
    text = request.match_info["container"]
    match = _CONTAINER.fullmatch(text)
    if match is None:
        raise RestError(400, f"java.lang.IllegalArgumentException: Invalid ContainerId: {text}")
    await _same_cluster(request, int(match[1]), f"container with id: {text} not found")
    app, attempt, number = (int(match[i]) for i in (2, 3, 4))
    fits = app < 1 << 23 and attempt < 1 << ATTEMPT_BITS and number < 1 << CONTAINER_BITS
    if not fits:
        raise RestError(404, f"container with id: {text} not found")
    return container_id(attempt_id(app, attempt), number)


async def _same_cluster(request: web.Request, cluster_ts: int, problem: str) -> None:
    if cluster_ts != (await source(request).metrics()).cluster_ts:
        raise RestError(404, problem)


async def find_node(request: web.Request, text: str) -> NodeReport:
    """Return a node by its name, with or without a port; 404 where there is none."""
    reports = {report.node_id: report for report in await source(request).nodes()}
    found = reports.get(text) or reports.get(text.rpartition(":")[0])
    if found is None:
        own = request.path.startswith("/api/")
        # Other paths are YARN's, and so are their words.
        raise RestError(404, f"there is no node {text}" if own else f"nodeId, {text}, is not found")
    return found
