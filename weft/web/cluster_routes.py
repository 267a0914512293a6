"""/ws/v1/cluster: what YARN's Resource Manager lets be read."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from weft.model.ids import app_of_attempt, attempt_of_container, format_attempt
from weft.protocol.requests import ApplicationReport, NodeReport
from weft.web import yarn, yarn_queues
from weft.web.answers import LISTING, RestError, answer
from weft.web.context import (
    app_of,
    attempt_of,
    container_of,
    face,
    find_node,
    parse_app,
    source,
)

routes = web.RouteTableDef()
BASE = "/ws/v1/cluster"
# What `deSelects` may leave out, and the fields that go with it.
DESELECTED_FIELDS = {
    "resourceRequests": ("resourceRequests",),
    "timeouts": ("timeouts",),
    "appNodeLabelExpression": ("appNodeLabelExpression",),
    "amNodeLabelExpression": ("amNodeLabelExpression",),
    "resourceInfo": ("resourceInfo",),
}


@routes.get(BASE)
@routes.get(BASE + "/")
@routes.get(BASE + "/info")
async def info(request: web.Request) -> web.Response:
    """Answer the cluster's identity and state."""
    read = source(request)
    found = yarn.cluster_info(face(request), await read.metrics(), await read.manager())
    return answer(request, {"clusterInfo": found})


@routes.get(BASE + "/metrics")
async def metrics(request: web.Request) -> web.Response:
    """Answer counts over the whole cluster."""
    found = yarn.cluster_metrics(await source(request).metrics())
    return answer(request, {"clusterMetrics": found})


@routes.get(BASE + "/scheduler")
async def scheduler(request: web.Request) -> web.Response:
    """Answer the tree of queues."""
    read = source(request)
    name = (await read.metrics()).scheduler
    found = yarn_queues.scheduler(await read.queues(), name, await read.apps())
    return answer(request, {"scheduler": {"schedulerInfo": found}})


@routes.get(BASE + "/scheduler-conf")
async def scheduler_conf(request: web.Request) -> web.Response:
    """Answer the queues' settings under the Capacity Scheduler's property names."""
    rows: list[dict[str, str]] = []

    def walk(queue: Any, above: float) -> None:
        prefix = f"yarn.scheduler.capacity.{queue.name}"
        own = 100.0 * queue.capacity / above if above else 0.0
        rows.append({"name": f"{prefix}.capacity", "value": f"{own:g}"})
        rows.append({"name": f"{prefix}.state", "value": queue.state})
        if queue.children:
            names = ",".join(yarn.leaf(child.name) for child in queue.children)
            rows.append({"name": f"{prefix}.queues", "value": names})
        for child in queue.children:
            walk(child, queue.capacity)

    walk(await source(request).queues(), 1.0)
    return answer(request, {"property": rows}, root="configuration")


# -- applications ----------------------------------------------------------------------------------


def _words(request: web.Request, name: str, known: Iterable[str], what: str) -> set[str]:
    values = {
        word.strip().upper()
        for text in request.query.getall(name, [])
        for word in text.split(",")
        if word.strip()
    }
    for word in values.difference(known):
        if what[:1].isupper():
            text = f"No enum constant org.apache.hadoop.yarn.api.records.{what}.{word}"
            raise RestError(400, text, ("IllegalArgumentException", "java.lang"))
        listed = ", ".join(known)
        raise RestError(400, f"Invalid {what} {word} specified. It should be one of [{listed}]")
    return values


def _number(request: web.Request, name: str, least: int) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise RestError(400, f"{name} value must be a number!") from None
    if value < least:
        raise RestError(400, f"{name} must be {least} or greater")
    return value


def _texts(request: web.Request, name: str) -> set[str]:
    return {w for text in request.query.getall(name, []) for w in text.lower().split(",") if w}


Test = Callable[[ApplicationReport], bool]


def _filters(request: web.Request) -> list[Test]:
    """Return one test per query parameter that is there."""
    query, unix_ms = request.query, source(request).unix_ms
    tests: list[Test] = []
    states = _words(request, "states", yarn.APP_STATES, "application-state")
    states |= _words(request, "state", yarn.APP_STATES, "application-state")
    if states:
        tests.append(lambda r: r.state in states)
    final = _words(request, "finalStatus", yarn.FINAL_STATES, "FinalApplicationStatus")
    if final:
        tests.append(lambda r: r.final_status in final)
    if user := query.get("user"):
        tests.append(lambda r: r.user == user)
    if queue := query.get("queue"):
        tests.append(lambda r: queue in (r.queue, yarn.leaf(r.queue)))
    if name := query.get("name"):
        tests.append(lambda r: r.name == name)
    if _texts(request, "applicationTypes") - {yarn.TYPE.lower()} == _texts(
        request, "applicationTypes"
    ) and _texts(request, "applicationTypes"):
        tests.append(lambda r: False)
    if _texts(request, "applicationTags"):
        # Nothing here carries a tag.
        tests.append(lambda r: False)
    first, last = _number(request, "startedTimeBegin", 0), _number(request, "startedTimeEnd", 0)
    if first is not None:
        tests.append(lambda r: unix_ms(r.submitted_s) >= first)
    if last is not None:
        tests.append(lambda r: unix_ms(r.submitted_s) <= last)
    begin, end = _number(request, "finishedTimeBegin", 0), _number(request, "finishedTimeEnd", 0)
    if begin is not None:
        tests.append(lambda r: unix_ms(r.finished_s) >= begin)
    # As in YARN, what has not ended has ended at 0.
    if end is not None:
        tests.append(lambda r: unix_ms(r.finished_s) <= end)
    return tests


@routes.get(BASE + "/apps")
@routes.get(BASE + "/apps/")
async def apps(request: web.Request) -> web.Response:
    """Answer every application that passes the filters, the newest `limit` of them.

    `before`, an application's id, asks for the page before: what was submitted before that one.
    """
    read, tests = source(request), _filters(request)
    limit = _number(request, "limit", 1)
    reports = await read.apps()
    if before := request.query.get("before", ""):
        number = await parse_app(request, before)
        places = [place for place, r in enumerate(reports) if r.app_id == number]
        reports = reports[: places[0] if places else 0]
    found = [r for r in reports if all(test(r) for test in tests)]
    if limit is not None:
        found = found[-limit:]
    now_s, own = (await read.metrics()).now_s, face(request)
    hidden = [
        field
        for text in request.query.getall("deSelects", [])
        for word in text.split(",")
        for field in DESELECTED_FIELDS.get(word, ())
    ]
    # One list is made at a time, and then none for as long as it took: others are served between.
    async with request.app[LISTING]:
        began_s = time.perf_counter()
        rows = [yarn.app(own, r, now_s) for r in found]
        for row in rows:
            for field in hidden:
                row.pop(field, None)
        listed = answer(request, {"apps": {"app": rows}})
        await asyncio.sleep(time.perf_counter() - began_s)
    return listed


@routes.get(BASE + "/appstatistics")
async def statistics(request: web.Request) -> web.Response:
    """Answer how many applications are in each state."""
    states = _words(request, "states", yarn.APP_STATES, "application-state")
    kinds = _texts(request, "applicationTypes")
    if len(kinds) > 1:
        raise RestError(400, "# of applicationTypes = 2, we temporarily support at most one")
    kind = next(iter(kinds), "*")
    counts: Counter[str] = Counter()
    if kind in ("*", yarn.TYPE.lower()):
        counts.update(report.state for report in await source(request).apps())
    items = [
        {"state": state, "type": kind, "count": counts[state]}
        for state in yarn.APP_STATES
        if not states or state in states
    ]
    return answer(request, {"appStatInfo": {"statItem": items}})


@routes.get(BASE + "/apps/{app}")
async def app(request: web.Request) -> web.Response:
    """Answer one application."""
    read, number = source(request), await app_of(request)
    report, now_s = await read.app(number), (await read.metrics()).now_s
    found = yarn.app(face(request), report, now_s)
    return answer(request, {"app": found})


@routes.get(BASE + "/apps/{app}/state")
async def state(request: web.Request) -> web.Response:
    """Answer an application's state."""
    report = await source(request).app(await app_of(request))
    return answer(request, {"state": report.state}, root="appstate")


@routes.get(BASE + "/apps/{app}/queue")
async def queue(request: web.Request) -> web.Response:
    """Answer an application's queue."""
    report = await source(request).app(await app_of(request))
    return answer(request, {"queue": report.queue}, root="appqueue")


@routes.get(BASE + "/apps/{app}/priority")
async def priority(request: web.Request) -> web.Response:
    """Answer an application's priority."""
    report = await source(request).app(await app_of(request))
    return answer(request, {"priority": report.priority}, root="applicationpriority")


@routes.get(BASE + "/apps/{app}/timeouts")
async def timeouts(request: web.Request) -> web.Response:
    """Answer an application's time limits: how long it may last."""
    report = await source(request).app(await app_of(request))
    return answer(request, {"timeouts": {"timeout": [yarn.timeout(face(request), report)]}})


@routes.get(BASE + "/apps/{app}/timeouts/{kind}")
async def one_timeout(request: web.Request) -> web.Response:
    """Answer one kind of time limit."""
    report = await source(request).app(await app_of(request))
    if request.match_info["kind"].upper() != "LIFETIME":
        raise RestError(400, f"Invalid timeout type {request.match_info['kind']}: only LIFETIME")
    return answer(request, {"timeout": yarn.timeout(face(request), report)})


@routes.get(BASE + "/apps/{app}/appattempts")
async def attempts(request: web.Request) -> web.Response:
    """Answer the attempts of an application."""
    read, number = source(request), await app_of(request)
    report = await read.app(number)
    found = yarn.attempts(face(request), report, await read.containers(number))
    return answer(request, {"appAttempts": {"appAttempt": found}})


@routes.get(BASE + "/apps/{app}/appattempts/{attempt}")
async def attempt(request: web.Request) -> web.Response:
    """Answer one attempt."""
    read, wanted = source(request), await attempt_of(request)
    number = app_of_attempt(wanted)
    report = await read.app(number)
    text = format_attempt(report.cluster_ts, wanted)
    for found in yarn.attempts(face(request), report, await read.containers(number)):
        if found["appAttemptId"] == text:
            return answer(request, {"appAttempt": found})
    raise RestError(404, f"app attempt with id: {text} not found")


async def _containers(request: web.Request) -> list[tuple[int, dict[str, Any]]]:
    read, wanted = source(request), await attempt_of(request)
    number = app_of_attempt(wanted)
    report, job = await read.app(number), await read.job(number)
    now_s, own = (await read.metrics()).now_s, face(request)
    return [
        (c.container_id, yarn.container(own, c, report.cluster_ts, report.user, job, now_s))
        for c in await read.containers(number)
        if attempt_of_container(c.container_id) == wanted
    ]


@routes.get(BASE + "/apps/{app}/appattempts/{attempt}/containers")
async def containers(request: web.Request) -> web.Response:
    """Answer the containers of an attempt, running and lately ended."""
    rows = [data for _, data in await _containers(request)]
    return answer(request, {"containers": {"container": rows}})


@routes.get(BASE + "/apps/{app}/appattempts/{attempt}/containers/{container}")
async def container(request: web.Request) -> web.Response:
    """Answer one container."""
    wanted = await container_of(request)
    for number, data in await _containers(request):
        if number == wanted:
            return answer(request, {"container": data})
    raise RestError(404, f"container with id: {request.match_info['container']} not found")


# -- nodes -----------------------------------------------------------------------------------------


@routes.get(BASE + "/nodes")
@routes.get(BASE + "/nodes/")
async def nodes(request: web.Request) -> web.Response:
    """Answer the nodes in the given states; none given: as in YARN, those that are not gone."""
    states = _words(request, "states", yarn.NODE_STATES + yarn.APP_STATES, "NodeState")
    states |= _words(request, "state", yarn.NODE_STATES, "NodeState")
    healthy, own = request.query.get("healthy", "").lower(), face(request)
    gone = {"DECOMMISSIONED", "LOST", "REBOOTED", "SHUTDOWN"}

    def passes(report: NodeReport) -> bool:
        right = report.state in states if states else report.state not in gone
        return right and (not healthy or (healthy == "true") == (report.state != "UNHEALTHY"))

    found = [yarn.node(own, r) for r in await source(request).nodes() if passes(r)]
    # As in YARN 3.5, what is empty is not named.
    return answer(request, {"nodes": {"node": found} if found else {}})


@routes.get(BASE + "/nodes/{node}")
async def node(request: web.Request) -> web.Response:
    """Answer one node."""
    found = await find_node(request, request.match_info["node"])
    return answer(request, {"node": yarn.node(face(request), found)})


# -- what YARN knows and Weft answers with what it has ---------------------------------------------


@routes.get(BASE + "/scheduler/activities")
async def activities(request: web.Request) -> web.Response:
    """Answer that no activity is kept by node; `app-activities` says why a stage waits."""
    now_ms = source(request).unix_ms((await source(request).metrics()).now_s)
    found = {"diagnostic": "No scheduling activity is kept by node", "timestamp": now_ms}
    return answer(request, {"activities": found | {"nodeId": request.query.get("nodeId", "ANY")}})


@routes.get(BASE + "/scheduler/app-activities/{app}")
async def app_activities(request: web.Request) -> web.Response:
    """Answer why each stage of an application is pending, by reason, as YARN groups them."""
    read, number = source(request), await app_of(request)
    explained = await read.explain(number)
    rows = [
        {
            "requestName": stage.stage,
            "requestPriority": 0,
            "allocationRequestId": position,
            "allocationState": "SKIPPED",
            "pending": stage.pending,
            "children": [
                {"allocationState": "SKIPPED", "diagnostic": reason, "count": count}
                for reason, count in stage.reasons.items()
            ],
        }
        for position, stage in enumerate(explained.stages)
    ]
    found = {
        "applicationId": request.match_info["app"],
        "diagnostic": explained.text,
        "timestamp": read.unix_ms((await read.metrics()).now_s),
        "allocations": {"allocation": [{"request": rows}] if rows else []},
    }
    return answer(request, {"appActivities": found})


@routes.get(BASE + "/reservation/list")
async def reservations(request: web.Request) -> web.Response:
    """Answer that there are none."""
    return answer(request, {"reservations": []}, root="reservationListInfo")
