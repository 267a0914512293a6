"""`weft play`: the cluster's pages over runs that are over, with a clock that goes both ways."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from aiohttp import web

from lab.play import PORT
from lab.play.views import PlayedClient, Run
from weft.model.errors import WeftError
from weft.runtime.http_server import PatientRunner
from weft.runtime.role_settings import WebSettings
from weft.runtime.settings import load
from weft.web.answers import RestError, answer, read_body
from weft.web.context import HISTORY, PLANS, SOURCE
from weft.web.server import STREAM_END_TIMEOUT_S, make_app

CLIENT = web.AppKey("played_client", PlayedClient)
FILMS: "web.AppKey[dict[int, bytes]]" = web.AppKey("films", dict)
WEIGHING = web.AppKey("weighing", asyncio.Lock)
routes = web.RouteTableDef()


@routes.get("/api/play")
async def about(request: web.Request) -> web.Response:
    """Answer the runs, and where the cluster's pages stand."""
    client = request.app[CLIENT]
    data = {"runs": [run.described() for run in client.runs], "chosen": client.chosen}
    return answer(request, data, root="play")


@routes.get("/api/play/{run}")
async def timeline(request: web.Request) -> web.Response:
    """Answer all columns of a run, which show any moment without another question."""
    place, films = _run(request), request.app[FILMS]
    if place not in films:
        run = request.app[CLIENT].runs[place]
        films[place] = await asyncio.to_thread(
            lambda: json.dumps(run.columns(), separators=(",", ":")).encode()
        )
    response = web.Response(body=films[place], content_type="application/json")
    response.enable_compression()
    return response


@routes.get("/api/play/{run}/decision/{row}")
async def decision(request: web.Request) -> web.Response:
    """Answer who competed for the room of a container; `row` is its place in the columns."""
    run, text = request.app[CLIENT].runs[_run(request)], request.match_info["row"]
    row = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    try:
        async with request.app[WEIGHING]:
            found = await asyncio.to_thread(run.weighed, row)
    except WeftError as error:
        raise RestError(404, str(error)) from None
    return answer(request, found, root="decision")


@routes.post("/api/play/at")
async def look(request: web.Request) -> web.Response:
    """Set the moment that the cluster's pages show: `run` and `at_s` on its clock."""
    body, app = await read_body(request), request.app
    run, at_s = body.get("run", 0), _finite(body.get("at_s"))
    known = type(run) is int and 0 <= run < len(app[CLIENT].runs)
    if not known or at_s is None:
        raise RestError(400, "expected a run's number and at_s, seconds on its clock")
    changes = run != app[CLIENT].chosen
    await app[CLIENT].look(run, at_s)
    app[SOURCE].forget()
    if changes:
        app[SOURCE].forget_jobs()
        app[PLANS].forget()
    return answer(request, {"run": run, "at_s": at_s}, root="play")


def _finite(number: object) -> float | None:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return float(number) if abs(number) <= sys.float_info.max else None


def _run(request: web.Request) -> int:
    runs, text = request.app[CLIENT].runs, request.match_info["run"]
    if text not in [str(number) for number in range(len(runs))]:
        raise RestError(404, f"there is no run {text}: {len(runs)} are played")
    return int(text)


def make_player(runs: Sequence[Run], settings: WebSettings) -> web.Application:
    """Return the pages over one run, or over two side by side."""
    shell = make_app(settings, None, played=True)  # type: ignore[arg-type]  # set right below
    client = PlayedClient(list(runs), shell[HISTORY])
    shell[SOURCE].client = client  # type: ignore[assignment]  # it has the calls that are made
    shell[CLIENT] = client
    shell[FILMS] = {}
    shell[WEIGHING] = asyncio.Lock()
    shell.add_routes(routes)
    return shell


async def _serve(
    runs: Sequence[Run], settings: WebSettings, ports: Sequence[int], ready: Callable[[str], Any]
) -> None:
    runner = PatientRunner(
        make_player(runs, settings),
        access_log=None,
        shutdown_timeout=STREAM_END_TIMEOUT_S,
        handler_cancellation=True,
    )
    await runner.setup()
    try:
        await _listen(runner, settings.host, ports)
        host, port = runner.addresses[0][:2]
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, ValueError):
                loop.add_signal_handler(number, ended.set)
        ready(f"http://{host}:{port}/cluster/play")
        await ended.wait()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, ports: Sequence[int]) -> None:
    """Listen on the first of the ports that is free; raises WeftError where none is."""
    problem = ""
    for port in ports:
        try:
            await web.TCPSite(runner, host, port).start()
            return
        except OSError as error:
            problem = f"cannot listen on {host}:{port}: {error.strerror or error}"
    raise WeftError(problem)


def serve(runs: Sequence[Run], ports: Sequence[int], ready: Callable[[str], Any]) -> None:
    """Serve runs on loopback until told to end; `ready` is told the player's address.

    The first of `ports` that is free is taken. Raises WeftError where none is.
    """
    # The environment must not change these.
    flags = ["--host=127.0.0.1", "--no-https"]
    asyncio.run(_serve(runs, load(WebSettings, flags, "weft.web"), ports, ready))


def serve_runs(played: Sequence[Any], port: int | None = None) -> None:
    """Serve the player until it is interrupted.

    Without a port that is on PORT, or on any free one where PORT is taken.
    """
    runs = [Run(one) for one in played]
    for run in runs:
        told = run.described()
        click.echo(
            f"{told['name']}: {told['scheduler']}, {told['jobs']:,} jobs, {told['tasks']:,} "
            f"decisions, {told['nodes']:,} nodes, {told['last_s'] - told['first_s']:,.1f} s"
        )
    serve(runs, (PORT, 0) if port is None else (port,), ready(click.echo))


def ready(say: Callable[[str], Any]) -> Callable[[str], None]:
    """Tell where the player is."""
    return lambda url: say(f"{url}   (Ctrl-C ends)")
