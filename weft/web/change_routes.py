"""/ws/v1/cluster: what YARN's Resource Manager lets be changed."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from weft.client.api import ENDED
from weft.model.errors import InputError
from weft.model.ids import format_app
from weft.model.job import Job, Stage
from weft.model.jobfile import job_from_dict
from weft.model.resources import read_amount
from weft.web import yarn
from weft.web.answers import RestError, answer, read_body
from weft.web.cluster_routes import BASE
from weft.web.context import app_of, face, find_node, parse_app, source

routes = web.RouteTableDef()
JOB_FIELD = "weft-job"
DURATION_FIELD = "weft-duration-s"
# A command that tells no duration is assumed to take so long; emulated hosts run it.
UNKNOWN_DURATION_S = 10.0


@routes.post(BASE + "/apps/new-application")
async def new_application(request: web.Request) -> web.Response:
    """Answer an id for a submission, and the largest container that any node can hold."""
    read = source(request)
    number = await read.client.new_application()
    nodes = [report.capacity for report in await read.nodes() if report.state == "RUNNING"]
    data = {
        "application-id": format_app(read.client.cluster_ts, number),
        "maximum-resource-capability": yarn.resource(
            {name: max(one.get(name, 0.0) for one in nodes) for name in (nodes[0] if nodes else ())}
        ),
    }
    return answer(request, data, root="NewApplication")


@routes.post(BASE + "/apps")
@routes.post(BASE + "/apps/")
async def submit(request: web.Request) -> web.Response:
    """Submit under an id of `new-application`; saying it again changes nothing."""
    body = await read_body(request)
    text = body.get("application-id")
    if not isinstance(text, str) or not text:
        raise RestError(400, "application-id is missing: POST apps/new-application gives one")
    number = await parse_app(request, text)
    job = job_of(body, request.query.get("user.name", ""))
    await source(request).client.submit(job, f"rest-{text}", number)
    source(request).forget()
    place = f"{face(request).base}{BASE}/apps/{text}"
    # As in YARN, the answer has no body.
    return web.Response(status=202, headers={"Location": place}, content_type="application/json")


def job_of(body: Mapping[str, Any], user: str = "") -> Job:
    """Return the job of a submission: `weft-job` as it stands, else the command as its one task."""
    if JOB_FIELD in body:
        table = body[JOB_FIELD]
        if not isinstance(table, dict):
            raise InputError(JOB_FIELD, "expected a job file's object")
        own = {"queue": body.get("queue"), "name": body.get("application-name"), "user": user}
        named = {key: value for key, value in own.items() if value and key not in table}
        if "priority" in body and "priority" not in table:
            named["priority"] = body["priority"]
        if "lifetime_s" not in table and (lifetime_s := _lifetime(body)):
            named["lifetime_s"] = lifetime_s
        return job_from_dict({**table, **named}, JOB_FIELD)
    if body.get("unmanaged-AM") is True:
        raise InputError("unmanaged-AM", "applications without a master are not supported")
    spec = _table(body, "am-container-spec")
    commands = _table(spec, "commands", "am-container-spec.").get("command")
    lines = [commands] if isinstance(commands, str) else commands
    if not isinstance(lines, list) or not lines or not all(isinstance(x, str) for x in lines):
        raise InputError("am-container-spec.commands.command", "expected a command")
    size = _table(body, "resource") if "resource" in body else {}
    stage = Stage(
        name="command",
        tasks=1,
        duration_s=read_amount(body.get(DURATION_FIELD, UNKNOWN_DURATION_S), DURATION_FIELD),
        demand={
            "vcores": read_amount(size.get("vCores", 1), "resource.vCores"),
            "memory_mb": read_amount(size.get("memory", 1024), "resource.memory"),
        },
        command=(*_environment(spec), "sh", "-c", "\n".join(lines)),
    )
    return Job(
        name=_text(body, "application-name", "N/A"),
        stages=(stage,),
        queue=_text(body, "queue", "default"),
        user=user,
        priority=_whole(body, "priority", 0, -(2**31)),
        lifetime_s=_lifetime(body),
        max_task_attempts=_whole(body, "max-app-attempts", 2, 1),
    )


def _lifetime(body: Mapping[str, Any]) -> float:
    """Return `application-timeouts`, s; 0: none. As `{"entry": [{"key": "LIFETIME", ...}]}`."""
    place = "application-timeouts"
    if place not in body:
        return 0.0
    entries = _table(body, place).get("entry", [])
    found = 0.0
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or entry.get("key") != "LIFETIME":
            raise InputError(f"{place}.entry", "expected entries with the key LIFETIME")
        found = read_amount(entry.get("value"), f"{place}.entry.value")
    return found


def _environment(spec: Mapping[str, Any]) -> tuple[str, ...]:
    entries = _table(spec, "environment").get("entry", []) if spec.get("environment") else []
    place = "am-container-spec.environment.entry"
    pairs = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            raise InputError(place, "expected a key and a value")
        if not entry["key"] or "=" in entry["key"]:
            raise InputError(place, f"{entry['key']!r} cannot be a variable's name")
        pairs.append(f"{entry['key']}={entry.get('value', '')}")
    return ("env", *pairs) if pairs else ()


def _table(body: Mapping[str, Any], key: str, above: str = "") -> Mapping[str, Any]:
    value = body.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{above}{key}", "expected an object")
    return value


def _text(body: Mapping[str, Any], key: str, default: str) -> str:
    value = body.get(key) or default
    if not isinstance(value, str):
        raise InputError(key, f"expected text, got {value!r}")
    return value


def _whole(body: Mapping[str, Any], key: str, default: int, least: int) -> int:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise InputError(key, f"expected a whole number of at least {least}, got {value!r}")
    return value


@routes.put(BASE + "/apps/{app}/state")
async def kill(request: web.Request) -> web.Response:
    """Kill: 202 while it dies, 200 once it is over; no other state can be asked for."""
    app, body = await app_of(request), await read_body(request)
    if body.get("state") != "KILLED":
        raise RestError(400, "Only 'KILLED' is allowed as a target state.")
    why = body.get("diagnostics")
    client, user = source(request).client, request.query.get("user.name", "")
    by = f" by {user}" if user else ""
    before = (await client.application(app)).state
    state = await client.kill(app, why if isinstance(why, str) else f"killed{by} over REST")
    source(request).forget()
    if before in ENDED:
        return answer(request, {"state": state}, root="appstate")
    place = {"Location": f"{face(request).base}{BASE}/apps/{request.match_info['app']}"}
    return answer(request, {"state": state}, 202, root="appstate", headers=place)


@routes.put(BASE + "/apps/{app}/queue")
async def move(request: web.Request) -> web.Response:
    """Move to another leaf queue."""
    app, body = await app_of(request), await read_body(request)
    queue = body.get("queue")
    if not isinstance(queue, str) or not queue:
        raise RestError(400, "queue: expected the name of a leaf queue")
    await source(request).client.move(app, queue)
    source(request).forget()
    report = await source(request).app(app)
    return answer(request, {"queue": report.queue}, root="appqueue")


@routes.put(BASE + "/apps/{app}/priority")
async def set_priority(request: web.Request) -> web.Response:
    """Change the priority; larger goes first."""
    app, body = await app_of(request), await read_body(request)
    if "priority" not in body:
        raise RestError(400, "priority: expected a whole number")
    priority = _whole(body, "priority", 0, -(2**31))
    await source(request).client.set_priority(app, priority)
    source(request).forget()
    return answer(request, {"priority": priority}, root="applicationpriority")


@routes.put(BASE + "/apps/{app}/timeout")
async def set_timeout(request: web.Request) -> web.Response:
    """Change when it is killed: `{"timeout": {"type": "LIFETIME", "expiryTime": ISO 8601}}`."""
    app, body = await app_of(request), await read_body(request)
    given = body.get("timeout", body)
    if not isinstance(given, dict) or str(given.get("type", "")).upper() != "LIFETIME":
        raise RestError(400, "timeout.type: expected LIFETIME")
    try:
        at = datetime.fromisoformat(str(given.get("expiryTime", "")))
    except ValueError:
        raise RestError(400, "timeout.expiryTime: expected a time as ISO 8601 has it") from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    expires_s = source(request).cluster_s(at.timestamp())
    if expires_s <= 0:
        raise RestError(400, "timeout.expiryTime: that was before the cluster's clock began")
    await source(request).client.set_expiry(app, expires_s)
    source(request).forget()
    report = await source(request).app(app)
    return answer(request, {"timeout": yarn.timeout(face(request), report)})


@routes.post(BASE + "/nodes/{node}/resource")
async def update_resource(request: web.Request) -> web.Response:
    """Say what a node has (`{"resource": {"memory": MB, "vCores": N}}`); what it runs goes on."""
    found, body = await find_node(request, request.match_info["node"]), await read_body(request)
    size = _table(body, "resource")
    wanted = {
        name: read_amount(size[key], f"resource.{key}")
        for key, name in (("memory", "memory_mb"), ("vCores", "vcores"))
        if key in size
    }
    if not wanted:
        raise InputError("resource", "expected memory or vCores")
    await source(request).client.update_node(found.node_id, wanted)
    source(request).forget()
    return answer(request, yarn.resource({**found.capacity, **wanted}), root="resource")


# -- what YARN allows and Weft refuses by name -----------------------------------------------------


@routes.put(BASE + "/scheduler-conf")
async def refuse_conf(request: web.Request) -> web.Response:
    """Refuse: a tree of queues is set as a whole, by `PUT /api/queues`."""
    raise RestError(400, "Configuration change only supported by MutableConfScheduler.")


@routes.post(BASE + "/containers/{container}/signal/{command}")
async def refuse_signal(request: web.Request) -> web.Response:
    """Refuse: containers end with their application."""
    raise RestError(400, "containers take no signals; kill the application")


@routes.post(BASE + "/reservation/{verb}")
async def refuse_reservation(request: web.Request) -> web.Response:
    """Refuse: there is no reservation system."""
    raise RestError(400, "Reservation is not enabled.")


@routes.post(BASE + "/delegation-token")
@routes.delete(BASE + "/delegation-token")
@routes.post(BASE + "/delegation-token/expiration")
async def refuse_token(request: web.Request) -> web.Response:
    """Refuse, as YARN answers without Kerberos."""
    raise RestError(
        403, "Delegation token operations can only be carried out on a Kerberos channel"
    )
