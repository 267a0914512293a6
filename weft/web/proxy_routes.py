"""`/proxy/<application>/`: the pages of an application's own master, as YARN's proxy shows them.

Foreign masters (Spark's) let only this host in, so their pages open through here. Reads only; only
the place that the master registered is asked.

What it shows comes from whoever submitted the application, under this server's name. The browser
is told to take it for a page of nobody (a sandbox with an opaque origin): its scripts run, but what
they ask of this server is refused as from another site. Where visitors are known, whoever is not
the application's user is warned first, as YARN's WebAppProxyServlet does.
"""

import html
import time
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp import web

from weft.model.ids import format_app
from weft.web.answers import RestError
from weft.web.context import USER, app_of, source

TIMEOUT_S = 30.0
CHUNK = 1 << 16
_PASSED = ("Content-Type", "Content-Disposition", "Last-Modified", "ETag", "Cache-Control")
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
OPENED: "web.AppKey[dict[tuple[str, str], float]]" = web.AppKey("opened", dict)
OPENED_S, OPENED_MAX = 3_600.0, 10_000
# Sec-Fetch-Site has these values for a link of ours, and for what the visitor typed.
OWN_SITES = ("same-origin", "none")
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


@routes.get("/proxy/{app}")
async def without_slash(request: web.Request) -> web.Response:
    """Redirect to the folder, as links of the page are relative to it."""
    raise web.HTTPFound(f"/proxy/{request.match_info['app']}/")


@routes.get("/proxy/redirect/{app}/{tail:.*}")
async def redirected(request: web.Request) -> web.Response:
    """Return where a master sends a browser that came to it directly."""
    raise web.HTTPFound(f"/proxy/{request.match_info['app']}/{request.match_info['tail']}")


@routes.get("/proxy/{app}/{tail:.*}")
async def page(request: web.Request) -> web.StreamResponse:
    """Answer one page of the master, links that lead to it turned back to here."""
    report = await source(request).app(await app_of(request))
    base = report.tracking_url
    if not base:
        raise RestError(404, "the application has told no address of pages of its own")
    if "://" not in base:
        base = f"http://{base}"
    if urlsplit(base).scheme not in ("http", "https"):
        raise RestError(404, f"no reader for {base}")
    name = format_app(report.cluster_ts, report.app_id)
    here = f"/proxy/{name}/"
    if (warning := _warned(request, name, report.user)) is not None:
        return warning
    wanted = urljoin(base.rstrip("/") + "/", request.match_info["tail"])
    if urlsplit(wanted).netloc != urlsplit(base).netloc:
        raise RestError(404, "the path leads elsewhere")
    headers = {"Cookie": "proxy-user=weft", "Accept": request.headers.get("Accept", "*/*")}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                wanted,
                params=[pair for pair in request.query.items() if pair[0] != APPROVED],
                headers=headers,
                allow_redirects=False,
            ) as got,
        ):
            return await _passed_on(request, got, base, here)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise RestError(503, f"the application's pages do not answer: {error}") from None


def _reads_on(request: web.Request, here: str) -> bool:
    """Return whether a page's script may read more of the same master.

    Spark's do. As a page in a sandbox has no origin, it cannot be told from one of another site: so
    for an hour after somebody opened the master's pages from here, or by their address. Where
    visitors are known, such a request shows nobody's login and is not answered.
    """
    now, opened = time.monotonic(), request.app[OPENED]
    key = (request.remote or "", here)
    mode = request.headers.get("Sec-Fetch-Mode", "navigate")
    if mode == "navigate" and request.headers.get("Sec-Fetch-Site", "none") in OWN_SITES:
        opened.pop(key, None)
        opened[key] = now
        if len(opened) > OPENED_MAX:
            del opened[next(iter(opened))]
    return now - opened.get(key, -OPENED_S) < OPENED_S


def _warned(request: web.Request, name: str, owner: str) -> web.Response | None:
    """Return what somebody sees first who opens a page of another user's application."""
    user = request.get(USER)
    opens = request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
    if user in (None, owner) or not opens or "text/html" not in request.headers.get("Accept", ""):
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
            path=f"/proxy/{name}/",
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
    for key, value in _HEADERS.items():
        response.headers[key] = value.format(own=own)
    if _reads_on(request, here):
        response.headers["Access-Control-Allow-Origin"] = "null"
    for name in _PASSED:
        if name in got.headers:
            response.headers[name] = got.headers[name]
    if "Location" in got.headers:
        to = urljoin(str(got.url), got.headers["Location"])
        inside = urlsplit(to).netloc == urlsplit(base).netloc
        path = urlsplit(to).path.lstrip("/")
        response.headers["Location"] = here + path if inside else to
    await response.prepare(request)
    async for data in got.content.iter_chunked(CHUNK):
        await response.write(data)
    await response.write_eof()
    return response
