"""Answers as YARN's web services give them: JSON by default, XML on request, RemoteException."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape

from aiohttp import web

from weft.client.api import RefusedError
from weft.model.errors import InputError, WeftError
from weft.runtime.http_server import Bodies

# A body is no larger, nor of more objects and lists, than the Resource Manager takes.
BODY_BYTES_MAX, OBJECTS_MAX = 16 << 20, 400_000
BODIES = web.AppKey("bodies", Bodies)
# Whoever has it makes a long list.
LISTING = web.AppKey("listing", asyncio.Lock)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# Compressing a smaller answer costs more than it saves.
COMPRESSED_BYTES_MIN = 1_000

# status -> (exception, package) as Hadoop names them
_NAMES = {
    400: ("BadRequestException", "org.apache.hadoop.yarn.webapp"),
    401: ("AuthenticationException", "org.apache.hadoop.security.authentication.client"),
    403: ("ForbiddenException", "org.apache.hadoop.yarn.webapp"),
    404: ("NotFoundException", "org.apache.hadoop.yarn.webapp"),
    405: ("MethodNotAllowedException", "com.sun.jersey.api"),
    409: ("ConflictException", "org.apache.hadoop.yarn.webapp"),
    413: ("WebApplicationException", "javax.ws.rs"),
    421: ("ForbiddenException", "org.apache.hadoop.yarn.webapp"),
    415: ("UnsupportedMediaTypeException", "javax.ws.rs"),
    503: ("RetriableException", "org.apache.hadoop.ipc"),
}
_OF_CODE = {
    "not_found": 404,
    "unauthenticated": 401,
    "permission_denied": 403,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "resource_exhausted": 503,
    "unavailable": 503,
}


class RestError(Exception):
    """A request ends with this status and message."""

    def __init__(self, status: int, message: str, name: tuple[str, str] | None = None) -> None:
        self.status = status
        self.message = message
        # An exception of Java's and its package, where it is not the usual one of the status.
        self.name = name
        super().__init__(message)


def answer(
    request: web.Request,
    data: Mapping[str, Any],
    status: int = 200,
    root: str = "",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return data in the form that the client accepts; `root` names unwrapped XML's element."""
    if wants_xml(request):
        text, kind = to_xml(data, root), "application/xml"
    else:
        text, kind = json.dumps(data, separators=(",", ":")), "application/json"
    response = web.Response(text=text, status=status, content_type=kind, headers=headers)
    response.headers["Cache-Control"] = "no-store"
    if len(text) >= COMPRESSED_BYTES_MIN:
        response.enable_compression()
    return response


def wants_xml(request: web.Request) -> bool:
    """Return whether XML is asked for and JSON is not."""
    accept = request.headers.get("Accept", "")
    return "xml" in accept and "json" not in accept and "html" not in accept


def to_xml(data: Mapping[str, Any], root: str = "") -> str:
    """Return one element; lists repeat their name, as JAXB writes them."""
    if not root:
        ((root, data),) = data.items()
    body = "".join(_element(name, value) for name, value in data.items())
    return f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?><{root}>{body}</{root}>'


def _element(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return f"<{name}>{''.join(_element(n, v) for n, v in value.items())}</{name}>"
    if isinstance(value, list | tuple):
        return "".join(_element(name, item) for item in value)
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"<{name}>{escape(text)}</{name}>"


def remote_exception(
    request: web.Request, status: int, message: str, own: tuple[str, str] | None = None
) -> web.Response:
    """Return an error as Hadoop writes it; `own` is an exception and its package."""
    name, package = own or _NAMES.get(status, ("WebApplicationException", "javax.ws.rs"))
    data = {"exception": name, "message": message, "javaClassName": f"{package}.{name}"}
    return answer(request, {"RemoteException": data}, status)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every failure as one RemoteException; the pages read the same."""
    try:
        return await handler(request)
    except RestError as error:
        return remote_exception(request, error.status, error.message, error.name)
    except RefusedError as error:
        status = _OF_CODE.get(error.code, 500)
        return remote_exception(request, status, str(error))
    except InputError as error:
        return remote_exception(request, 400, str(error))
    except WeftError as error:
        return remote_exception(request, 503, str(error))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return remote_exception(request, 404, "no file has so long a name")
    except web.HTTPException as error:
        if error.status < 400:
            raise
        found = remote_exception(request, error.status, f"{error.reason}: {request.path}")
        if "Allow" in error.headers:
            found.headers["Allow"] = error.headers["Allow"]
        return found


async def read_body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object of a writing request; a form of another site cannot send this type."""
    if request.content_type != "application/json":
        raise RestError(415, f"expected application/json, got {request.content_type}")
    try:
        body = await request.app[BODIES].read(request, BODY_BYTES_MAX)
        if body.count(b"{") + body.count(b"[") > OBJECTS_MAX:
            raise ValueError(f"more than {OBJECTS_MAX:,} objects and lists")
        data = json.loads(body.decode(request.charset or "utf-8"))
    except TimeoutError:
        raise RestError(503, "the body did not come in time, or made room for others") from None
    except LookupError:
        raise RestError(415, f"unknown charset {request.charset!r}") from None
    except (ValueError, RecursionError) as error:
        raise RestError(400, f"invalid JSON: {error}") from None
    if not isinstance(data, dict):
        raise RestError(400, f"expected an object, got {type(data).__name__}")
    return data
