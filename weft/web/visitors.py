"""Who visits pages and REST that are served over TLS: by certificate, or by a user's token.

Everybody else is answered 401 before anything is read. What a visitor reads and changes is asked of
the Resource Manager in the visitor's name, which decides; a page of an application is shown only to
those who may see the application.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from weft.client.api import AsyncClient
from weft.protocol.access import Role, role_of
from weft.web.answers import Handler, remote_exception
from weft.web.context import SETTINGS, SOURCE, USER, VISITOR, WHO, parse_app
from weft.web.passes import PASSES, Who
from weft.web.source import Source
from weft.wire.tokens import user_of

# The reads of so many visitors are shared for half a second.
SOURCES_MAX = 200
SOURCES: "web.AppKey[dict[tuple[str, str], Source]]" = web.AppKey("sources", dict)


@web.middleware
async def known(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let in who is known, as whom the request then reads and changes."""
    if not request.app[SETTINGS].https:
        return await handler(request)
    who = _shown(request) or passed(request)
    if who is None:
        response = remote_exception(request, 401, "show a certificate, or a token of `weft login`")
        # Chromium asks for a login only by a challenge in a line of its own.
        for challenge in ('Basic realm="Weft: any name, the token"', "Bearer"):
            response.headers.add("WWW-Authenticate", challenge)
        return response
    request[WHO], request[VISITOR] = who, await _source(request.app, who)
    # By now the manager has accepted the token.
    request[USER] = who[0] or user_of(who[1])
    if "app" in request.match_info:
        await request[VISITOR].app(await parse_app(request, request.match_info["app"]))
    return await handler(request)


def passed(request: web.Request) -> Who | None:
    """Return who was given the pass that a path names; None: it names none that is good."""
    word, app = (request.match_info.get(name, "") for name in ("word", "app"))
    return request.app[PASSES].who(word, app, request.remote or "") if word else None


def _shown(request: web.Request) -> Who | None:
    """Return (user, token) of a visitor: one is empty, both for an operator; None: a stranger."""
    transport = request.transport
    peer: dict[str, Any] = (transport.get_extra_info("peercert") if transport else None) or {}
    for kind, value in peer.get("subjectAltName", ()):
        found = role_of(value) if kind == "URI" else None
        if found is not None and found[0] in (Role.ADMIN, Role.GATEWAY):
            return "", ""
        if found is not None and found[0] is Role.CLIENT:
            return found[1], ""
    token = token_of(request.headers.get("Authorization", ""))
    return ("", token) if token else None


def token_of(header: str) -> str:
    """Return the token in an Authorization header, as a bearer's or as the password of any name."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


async def _source(app: web.Application, who: Who) -> Source:
    if who == ("", ""):
        return app[SOURCE]
    sources, settings = app[SOURCES], app[SETTINGS]
    found = sources.pop(who, None)
    if found is None:
        client = AsyncClient(settings.manager, settings.deadline_s, *who, for_others=True)
        found = Source(client, settings.epoch_s, settings.time_scale)
        if len(sources) >= SOURCES_MAX:
            await sources.pop(next(iter(sources))).client.close()
    sources[who] = found
    # A token that the manager does not accept is refused here.
    await found.metrics()
    return found


def forget(app: web.Application) -> None:
    """Forget all: the cluster is another one."""
    for one in app[SOURCES].values():
        one.forget_jobs()


async def close(app: web.Application) -> None:
    """Close the visitors' connections."""
    closing: list[Callable[[], Awaitable[None]]] = [
        one.client.close for one in app[SOURCES].values()
    ]
    for each in closing:
        await each()
