"""The web process: routes put together, what watches the manager started, everything ended."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import partial

from aiohttp import web

from weft.client.api import AsyncClient
from weft.model.errors import WeftError
from weft.policies.presets import preset
from weft.runtime.http_door import Door
from weft.runtime.http_server import BACKLOG, Bodies, PatientRunner, application
from weft.runtime.process import Process
from weft.runtime.role_settings import WebSettings
from weft.web import (
    app_routes,
    change_routes,
    cluster_routes,
    following,
    node_routes,
    page_routes,
    proxy_routes,
    visitors,
)
from weft.web.answers import BODIES, LISTING, Handler, errors, remote_exception
from weft.web.context import HISTORY, LIVE_STREAMS, PLANS, PLAYED, SETTINGS, SOURCE, lacking
from weft.web.history import History
from weft.web.keeping import Keeper
from weft.web.passes import PASSES, Passes
from weft.web.plans import Plans
from weft.web.proxy_routes import UNDER_WAY, UnderWay
from weft.web.source import Source
from weft.wire import tls

# One job may be so large on the wire.
# Open live streams get no longer to end.
STREAM_END_TIMEOUT_S = 1.0
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def make_app(
    settings: WebSettings, client: AsyncClient, *, played: bool = False
) -> web.Application:
    """Return every route over one client; what follows the manager starts with the application.

    `played`: the client tells of a run that is over; who plays it feeds the history himself.
    """
    app = application(
        Door([settings.host, *settings.allowed_hosts]),
        before=[headers, errors],
        after=[visitors.known],
        refuse=remote_exception,
    )
    app[visitors.SOURCES] = {}
    app[BODIES] = Bodies()
    app[LISTING] = asyncio.Lock()
    app[PASSES] = Passes()
    app[UNDER_WAY] = UnderWay()
    app.on_cleanup.append(visitors.close)
    app[SETTINGS] = settings
    app[SOURCE] = Source(client, settings.epoch_s, settings.time_scale)
    app[HISTORY] = History()
    app[PLANS] = Plans(preset(settings.scheduler).planner, settings.plan_limit_s)
    app[LIVE_STREAMS] = {"count": 0}
    app[PLAYED] = played
    app[HISTORY].on_new_cluster += [
        app[SOURCE].forget_jobs,
        app[PLANS].forget,
        partial(visitors.forget, app),
    ]
    for table in (cluster_routes, change_routes, app_routes, page_routes, proxy_routes):
        app.add_routes(table.routes)
    app.add_routes(node_routes.routes())
    app.router.add_static("/static", page_routes.STATIC)
    app.cleanup_ctx.append(_plans if played else _following)
    return app


async def _plans(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[PLANS].close()


async def _following(app: web.Application) -> AsyncIterator[None]:
    known, client = app[HISTORY], app[SOURCE].client
    file = app[SETTINGS].history
    keeper = Keeper(file) if file is not None else None
    if keeper is not None:
        keeper.load(known)
    works = {"sampling the manager": following.sample}
    if app[SETTINGS].watch:
        works["watching the manager"] = following.watch
    tasks = [
        asyncio.create_task(following.for_good(what, partial(work, known, client)))
        for what, work in works.items()
    ]
    if keeper is not None:
        save = following.for_good("keeping the history", partial(keeper.follow, known))
        tasks.append(asyncio.create_task(save))
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await app[PLANS].close()
    if keeper is not None:
        await keeper.close(known)


@web.middleware
async def headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Add headers: nothing from elsewhere runs in the pages, and nobody frames them."""
    response = await handler(request)
    if not response.prepared:
        response.headers.update(HEADERS)
        if request.path.startswith("/static/"):
            response.headers["Cache-Control"] = "no-cache"
        else:
            response.headers.update(lacking(request))
    return response


async def serve(settings: WebSettings) -> None:
    """Serve until told to end."""
    process = Process(settings)
    client = AsyncClient(settings.manager, settings.deadline_s, for_others=True)
    runner = PatientRunner(
        make_app(settings, client),
        access_log=None,
        shutdown_timeout=STREAM_END_TIMEOUT_S,
        handler_cancellation=True,
    )
    await runner.setup()
    context = None
    if settings.https:
        files = process.tls_files("--https")
        context = tls.server_context(files, ssl.CERT_OPTIONAL)
        process.on_renewed.append(partial(tls.load, files, context))
    site = web.TCPSite(runner, settings.host, settings.port, ssl_context=context, backlog=BACKLOG)
    try:
        try:
            await site.start()
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise WeftError(f"cannot listen on {where}: {error.strerror or error}") from None
        process.serve_metrics()
        host, port = runner.addresses[0][:2]
        process.ready(
            address=f"{host}:{port}", url=f"http{'s' * settings.https}://{host}:{port}/cluster"
        )
        await process.until_end()
    finally:
        await runner.cleanup()
        await client.close()
        await process.close()
