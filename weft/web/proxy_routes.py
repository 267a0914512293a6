"""`/proxy/<application>/`: the pages of an application's own master, as YARN's proxy shows them.

Foreign masters (Spark's) let only this host in, so their pages open through here. Reads only; only
the place that the master registered is asked.

What it shows comes from whoever submitted the application, under this server's name. The browser
is told to take it for a page of nobody (a sandbox with an opaque origin): its scripts run, but what
they ask of this server is refused as from another site; what they ask of the same master goes by a
pass (`weft.web.passes`). Where visitors are known, whoever is not
the application's user is warned first, as YARN's WebAppProxyServlet does.
"""

import asyncio
import contextlib
import html
import os
from collections.abc import AsyncIterator
from urllib.parse import urljoin, urlsplit, urlunsplit

import aiohttp
from aiohttp import web

from weft.model.ids import AppId, format_app
from weft.web.answers import RestError
from weft.web.context import USER, WHO, app_of, source
from weft.web.passes import PASSES
from weft.web.visitors import passed

TIMEOUT_S = 30.0
# Each request that is passed on says by whom (RFC 9110, section 7.6.3): one that comes back has
# gone round, and would do so until no connection is left.
VIA = f"1.1 weft-{os.urandom(8).hex()}"
CHUNK = 1 << 14
# So many pages are passed on at a time, and so many of one application: the oldest makes room.
PAGES_MAX, PAGES_OF_APP_MAX = 100, 20
# A request has this when its answer has begun.
BEGUN = "begun"
_PASSED = (
    "Content-Type",
    "Content-Encoding",
    "Content-Disposition",
    "Last-Modified",
    "ETag",
    "Cache-Control",
)
_HEADERS = {
    "Content-Security-Policy": "sandbox allow-scripts allow-forms allow-popups allow-downloads;"
    " default-src {own} 'unsafe-inline'; img-src {own} data:; font-src {own} data:;"
    " form-action {own}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
# What the scripts of a page ask for, as it is below the address of the page.
PASSED_BY = "/pass/{word}/proxy/{app}/{tail:.*}"
_PREFLIGHT = {
    "Access-Control-Allow-Origin": "null",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "X-Requested-With, Content-Type",
    "Access-Control-Max-Age": "600",
}
# YARN has this name for the parameter.
APPROVED = "proxyapproved"
WARNING = """<!DOCTYPE html>
<html lang="en"><title>A page of {app}</title>
<h1>This page is not Weft's</h1>
<p>It is shown by {app}, which belongs to <strong>{user}</strong>. Whatever it says or asks for, a
password for example, is of that user's making.</p>
<p><a href="{link}">Show it all the same</a>, or go back to <a href="/cluster/app/{app}">its page
here</a>.</p></html>
"""
routes = web.RouteTableDef()


class UnderWay:
    """Pages that are passed on: whoever serves or asks for them may have it last for long."""

    def __init__(self) -> None:
        self._of: dict[AppId, dict[asyncio.Timeout, None]] = {}

    @contextlib.asynccontextmanager
    async def page(self, app: AppId) -> AsyncIterator[None]:
        """Pass a page on; raises TimeoutError when that took too long, or made room for others."""
        async with asyncio.timeout(TIMEOUT_S) as limit:
            own = self._of.setdefault(app, {})
            own[limit] = None
            if len(own) > PAGES_OF_APP_MAX:
                _give_way(own)
            elif sum(map(len, self._of.values())) > PAGES_MAX:
                _give_way(max(self._of.values(), key=len))
            try:
                yield
            finally:
                own.pop(limit, None)
                if not own and self._of.get(app) is own:
                    del self._of[app]


def _give_way(pages: dict[asyncio.Timeout, None]) -> None:
    oldest = next(iter(pages))
    del pages[oldest]
    oldest.reschedule(asyncio.get_running_loop().time())


UNDER_WAY: "web.AppKey[UnderWay]" = web.AppKey("pages under way", UnderWay)


@routes.get("/proxy/{app}")
async def without_slash(request: web.Request) -> web.Response:
    """Redirect to the folder, as links of the page are relative to it."""
    raise web.HTTPFound(f"/proxy/{request.match_info['app']}/")


@routes.get("/proxy/redirect/{app}/{tail:.*}")
async def redirected(request: web.Request) -> web.Response:
    """Return where a master sends a browser that came to it directly."""
    raise web.HTTPFound(f"/proxy/{request.match_info['app']}/{request.match_info['tail']}")


@routes.options(PASSED_BY)
async def asked_before(request: web.Request) -> web.Response:
    """Let a script of the page say what scripts say (jQuery, which Spark's pages use)."""
    return web.Response(status=204, headers=_PREFLIGHT)


@routes.get(PASSED_BY)
@routes.get("/proxy/{app}/{tail:.*}")
async def page(request: web.Request) -> web.StreamResponse:
    """Answer one page of the master, links that lead to it turned back to here."""
    report = await source(request).app(await app_of(request))
    base = report.tracking_url
    if not base:
        raise RestError(404, "the application has reported no address of pages of its own")
    if "://" not in base:
        base = f"http://{base}"
    if urlsplit(base).scheme not in ("http", "https"):
        raise RestError(404, f"no reader for {base}")
    name = format_app(report.cluster_ts, report.app_id)
    here = f"/proxy/{name}/"
    word = request.match_info.get("word", "")
    place = f"{here}{request.match_info['tail']}"
    if word and passed(request) is None:
        if not _opens(request):
            raise RestError(403, "the page is too old to read on: open it again")
        raise web.HTTPFound(request.rel_url.with_path(place, keep_query=True))
    if (warning := _warned(request, name, report.user)) is not None:
        return warning
    if not word and _opens(request):
        who = request.get(WHO, ("", ""))
        word = request.app[PASSES].give(who, name, request.remote or "")
        raise web.HTTPFound(request.rel_url.with_path(f"/pass/{word}{place}", keep_query=True))
    wanted = urljoin(base.rstrip("/") + "/", request.match_info["tail"])
    if urlsplit(wanted).netloc != urlsplit(base).netloc:
        raise RestError(404, "the path leads elsewhere")
    passed_by = request.headers.getall("Via", [])
    if any(VIA in one for one in passed_by):
        raise RestError(508, "the application's address leads back to this server")
    headers = {
        "Via": ", ".join([*passed_by, VIA]),
        "Cookie": "proxy-user=weft",
        "Accept": request.headers.get("Accept", "*/*"),
        "Accept-Encoding": request.headers.get("Accept-Encoding", "identity"),
    }
    try:
        async with (
            request.app[UNDER_WAY].page(report.app_id),
            # What is packed is the browser's to unpack: a kilobyte may become a megabyte.
            aiohttp.ClientSession(read_bufsize=CHUNK, auto_decompress=False) as session,
            session.get(
                wanted,
                params=[pair for pair in request.query.items() if pair[0] != APPROVED],
                headers=headers,
                allow_redirects=False,
            ) as got,
        ):
            return await _passed_on(request, got, base, here)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        if BEGUN in request and request.transport is not None:
            # A second answer in the middle of the first would be taken for a part of it.
            request.transport.abort()
            raise ConnectionResetError from None
        raise RestError(503, f"the application's pages do not answer: {error}") from None


def _opens(request: web.Request) -> bool:
    """Return whether a browser opens a page, rather than a page something of its own."""
    mode = request.headers.get("Sec-Fetch-Mode", "navigate")
    return mode == "navigate" and "text/html" in request.headers.get("Accept", "")


def _warned(request: web.Request, name: str, owner: str) -> web.Response | None:
    """Return what somebody sees first who opens a page of another user's application."""
    user = request.get(USER)
    if user in (None, owner) or not _opens(request):
        return None
    cookie = f"weft-{APPROVED}-{name}"
    if request.cookies.get(cookie) == "true":
        return None
    # only a click on the warning itself is leave: a page of another site may have the same link
    own = request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
    if own and request.query.get(APPROVED) == "true":
        response = web.Response(
            status=302, headers={"Location": str(request.rel_url.without_query_params(APPROVED))}
        )
        response.set_cookie(
            cookie,
            "true",
            path="/",
            httponly=True,
            samesite="Lax",
            secure=request.secure,
        )
        return response
    link = str(request.rel_url.update_query({APPROVED: "true"}))
    text = WARNING.format(app=name, user=html.escape(owner), link=html.escape(link))
    return web.Response(text=text, content_type="text/html", headers={"Cache-Control": "no-store"})


async def _passed_on(
    request: web.Request, got: aiohttp.ClientResponse, base: str, here: str
) -> web.StreamResponse:
    response = web.StreamResponse(status=got.status)
    own = f"{request.scheme}://{request.host}"
    if request.match_info.get("word"):
        response.headers["Access-Control-Allow-Origin"] = "null"
    for key, value in _HEADERS.items():
        response.headers[key] = value.format(own=own)
    for name in _PASSED:
        if name in got.headers:
            response.headers[name] = got.headers[name]
    if "Location" in got.headers:
        to = urljoin(str(got.url), got.headers["Location"])
        inside = urlsplit(to).netloc == urlsplit(base).netloc
        own_part = urlunsplit(urlsplit(to)._replace(scheme="", netloc="")).lstrip("/")
        response.headers["Location"] = here + own_part if inside else to
    request[BEGUN] = True
    await response.prepare(request)
    async for data in got.content.iter_chunked(CHUNK):
        await response.write(data)
    await response.write_eof()
    return response
