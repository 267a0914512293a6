"""`/proxy/<application>/`: the pages of an application's own master, as YARN's proxy shows them.

Foreign masters (Spark's) let only this host in, so their pages open through here. Reads only; only
the place that the master registered is asked. What it shows comes from whoever submitted the
application, under this server's name: it may not be framed, and may load from here only.
"""

from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp import web

from weft.model.ids import format_app
from weft.web.answers import RestError
from weft.web.context import app_of, source

TIMEOUT_S = 30.0
CHUNK = 1 << 16
_PASSED = ("Content-Type", "Content-Disposition", "Last-Modified", "ETag", "Cache-Control")
_HEADERS = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
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
    here = f"/proxy/{format_app(report.cluster_ts, report.app_id)}/"
    wanted = urljoin(base.rstrip("/") + "/", request.match_info["tail"])
    if urlsplit(wanted).netloc != urlsplit(base).netloc:
        raise RestError(404, "the path leads elsewhere")
    headers = {"Cookie": "proxy-user=weft", "Accept": request.headers.get("Accept", "*/*")}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                wanted, params=request.query, headers=headers, allow_redirects=False
            ) as got,
        ):
            return await _passed_on(request, got, base, here)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise RestError(503, f"the application's pages do not answer: {error}") from None


async def _passed_on(
    request: web.Request, got: aiohttp.ClientResponse, base: str, here: str
) -> web.StreamResponse:
    response = web.StreamResponse(status=got.status, headers=_HEADERS)
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
