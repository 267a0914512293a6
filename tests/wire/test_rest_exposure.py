"""What the pages tell to whom: names of hosts, connections, headers; where a process may listen."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from testkit.forked import ended
from testkit.web import CLUSTER_TS, FakeClient
from weft.model.errors import InputError
from weft.runtime import http_server
from weft.runtime.bind_check import check, is_loopback
from weft.runtime.http_server import PatientRunner
from weft.runtime.role_settings import WebSettings
from weft.web import proxy_routes, source
from weft.web.server import make_app
from weft.yarn.web import read_name


@contextlib.asynccontextmanager
async def pages(most: int = 100, **settings: Any) -> AsyncIterator[tuple[str, int, FakeClient]]:
    fake = FakeClient(nodes=3, apps=3)
    app = make_app(WebSettings(port=0, watch=False, **settings), fake)  # type: ignore[arg-type]
    runner = PatientRunner(app, most=most, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield (*runner.addresses[0][:2], fake)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("localhost:8088", 200),
        ("[::1]:8088", 200),
        ("10.1.2.3", 200),
        ("weft.example:8088", 200),
        ("WEFT.example.", 200),
        ("evil.example", 421),
        ("evil.example:8088", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("a@evil.example", 421),
    ],
)
def test_a_name_that_is_not_ours_is_answered_nothing(host: str, status: int) -> None:
    """A rebinding page has its own name in Host and Origin, and both agree."""

    async def main() -> None:
        async with pages(allowed_hosts=["weft.example"]) as (place, port, _):
            where = f"http://{place}:{port}"
            origin = {"Host": host, "Origin": f"http://{host}"}
            async with ClientSession() as session:
                async with session.get(f"{where}/ws/v1/cluster/info", headers=origin) as got:
                    assert got.status == status
                    assert ("clusterInfo" in await got.text()) == (status == 200)
                if status != 200:
                    made = f"{where}/ws/v1/cluster/apps/new-application"
                    async with session.post(made, headers=origin) as got:
                        assert got.status == status
                        assert "no name of this server" in await got.text()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["n" * 300, "n" * 5000, "n" * 300 + "/a"])
def test_a_file_that_is_not_there_is_not_found_however_long_its_name(name: str) -> None:
    async def main() -> None:
        async with (
            pages() as (place, port, _),
            ClientSession() as session,
            session.get(f"http://{place}:{port}/static/{name}") as got,
        ):
            assert got.status == 404
            assert "RemoteException" in await got.text()

    asyncio.run(main())


def test_a_number_that_no_id_has_is_the_callers_fault() -> None:
    digits = "9" * 4_500
    paths = [f"/ws/v1/cluster/apps/application_{each}_1" for each in (digits, "²")]
    paths += [f"/ws/v1/cluster/apps/application_{CLUSTER_TS}_{digits}"]
    paths += [f"{paths[0]}/appattempts/{digits}", f"/proxy/application_1_{digits}/"]
    paths += [f"/ws/v1/node/containers/container_{CLUSTER_TS}_0001_01_{digits}"]
    paths += [f"/ws/v1/cluster/apps/application_{CLUSTER_TS}_0001/appattempts/{digits}"]

    async def main() -> None:
        async with pages() as (place, port, _), ClientSession() as session:
            for path in paths:
                async with session.get(f"http://{place}:{port}{path}") as got:
                    assert got.status in (400, 404), path[:60]

    asyncio.run(main())
    for name in (f"container_1_1_1_{digits}", "container_²_²_²_²"):
        with pytest.raises(InputError, match="no container id"):
            read_name(name)


def test_pages_of_an_application_that_do_not_end_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever serves an endless page may also be who asks for it, a thousand times."""
    monkeypatch.setattr(proxy_routes, "PAGES_OF_APP_MAX", 2)

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            while True:
                writer.write(b"x" * 1_000)
                await writer.drain()

    async def main() -> None:
        master = await asyncio.start_server(endless, "127.0.0.1", 0)
        own = f"127.0.0.1:{master.sockets[0].getsockname()[1]}"
        async with pages() as (place, port, fake):
            usual = fake.application

            async def application(app: int) -> Any:
                return replace(await usual(app), tracking_url=own)

            fake.application = application  # type: ignore[method-assign]
            asked = []
            for app in (1, 2, 2, 2):
                reader, writer = await asyncio.open_connection(place, port)
                path = f"/proxy/application_{CLUSTER_TS}_000{app}/"
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
                assert b" 200 " in await reader.readline()
                asked.append((reader, writer))
            with contextlib.suppress(ConnectionError):
                while await asked[1][0].read(1 << 16):
                    pass
            # The others are passed on: also of the application that has most.
            for place_of in (0, 2, 3):
                for _ in range(200):
                    assert await asked[place_of][0].read(1 << 16)
            for _, writer in asked:
                writer.close()
        master.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_was_read_for_a_page_is_not_kept_for_all_that_is_read_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report or a job may have megabytes, and anybody opens any number of pages."""
    monkeypatch.setattr(source, "FRESH_S", -1.0)
    monkeypatch.setattr(source, "JOBS_BYTES_MAX", 1)

    async def main() -> None:
        read = source.Source(FakeClient(nodes=3, apps=50))  # type: ignore[arg-type]
        for number in range(1, 40):
            assert (await read.app(number)).app_id == number
            assert await read.job(number) is await read.job(number)
        assert len(read._kept) == 1
        assert len(read._jobs) == 1

    asyncio.run(main())


def test_an_application_whose_address_leads_back_here_is_asked_once() -> None:
    """It would else be asked for by itself, and that again, until no connection is left."""
    asked = []

    async def main() -> None:
        async with pages() as (place, port, fake):
            own = f"/proxy/application_{CLUSTER_TS}_0001/"
            usual = fake.application

            async def application(app: int) -> Any:
                asked.append(app)
                return replace(await usual(app), tracking_url=f"http://{place}:{port}{own}")

            fake.application = application  # type: ignore[method-assign]
            async with (
                ClientSession() as session,
                session.get(f"http://{place}:{port}{own}") as got,
            ):
                assert got.status == 508
                assert "leads back" in await got.text()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert len(asked) <= 2


def test_every_answer_has_the_headers_that_keep_others_out() -> None:
    async def main() -> None:
        async with pages() as (place, port, _), ClientSession() as session:
            for path in ("/cluster", "/ws/v1/cluster/info", "/nowhere"):
                async with session.get(f"http://{place}:{port}{path}") as got:
                    assert "frame-ancestors 'none'" in got.headers["Content-Security-Policy"]
                    assert got.headers["X-Content-Type-Options"] == "nosniff"
                    assert got.headers["Cross-Origin-Resource-Policy"] == "same-origin"

    asyncio.run(main())


def test_no_path_answers_a_stranger_where_visitors_are_known() -> None:
    """Every route there is, with every method that it takes."""

    async def main() -> None:
        async with pages(https=True) as (place, port, fake), ClientSession() as session:
            app = make_app(WebSettings(port=0, watch=False), fake)  # type: ignore[arg-type]
            routes = {
                (route.method, str(route.resource.canonical))
                for route in app.router.routes()
                if route.resource is not None
            }
            assert len(routes) > 60
            for method, path in sorted(routes):
                where = re.sub(r"\{[^}]*\}", "x", path)
                how = "GET" if method == "*" else method
                async with session.request(how, f"http://{place}:{port}{where}") as got:
                    assert got.status == 401, (method, path)
                    challenges = got.headers.getall("WWW-Authenticate")
                    assert [each.split()[0] for each in challenges] == ["Basic", "Bearer"]

    asyncio.run(main())


ASKED = b"GET /ws/v1/cluster/info HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def dialled(place: str, port: int, asks: bytes = ASKED) -> tuple[Any, Any]:
    """Return a connection that asked for something and heard the begin of an answer."""
    reader, writer = await asyncio.open_connection(place, port)
    writer.write(asks)
    assert b" 200 " in await reader.readline()
    return reader, writer


def test_of_too_many_connections_the_one_that_was_idle_for_longest_makes_room() -> None:
    async def main() -> None:
        async with pages(most=10) as (place, port, _), asyncio.timeout(30):
            kept = [await dialled(place, port) for _ in range(10)]
            # It asks again, so the second is idle for longest.
            kept[0][1].write(ASKED)
            await kept[0][0].readuntil(b"HTTP/1.1 200")
            kept.append(await dialled(place, port))
            with contextlib.suppress(ConnectionResetError):
                await kept[1][0].read()
            for number in (0, 10):
                kept[number][1].write(ASKED)
                await kept[number][0].readuntil(b"HTTP/1.1 200")
            for _, writer in kept:
                writer.close()

    asyncio.run(main())


def test_others_are_served_between_lists_of_all_applications() -> None:
    async def main() -> list[str]:
        ended: list[str] = []

        async def ask(name: str) -> None:
            reader, writer = connections.pop()
            writer.write(f"GET /ws/v1/cluster/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert b" 200 " in await reader.readline()
            ended.append(name)
            writer.close()

        async with pages() as (place, port, _), asyncio.timeout(30):
            connections = [await asyncio.open_connection(place, port) for _ in range(31)]
            names = [*["apps"] * 30, "info"]
            await asyncio.gather(*(ask(name) for name in names))
        return ended

    assert asyncio.run(main()).index("info") < 10


def test_where_all_connections_are_within_a_request_one_too_many_is_closed() -> None:
    async def main() -> None:
        async with pages(most=3) as (place, port, _), asyncio.timeout(30):
            asked = b"GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
            kept = [await dialled(place, port, asked) for _ in range(3)]
            reader, writer = await asyncio.open_connection(place, port)
            assert await reader.read() == b""
            for _, each in [*kept, (reader, writer)]:
                each.close()

    asyncio.run(main())


def test_where_all_connections_are_within_a_request_the_oldest_gives_way_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S_MIN", 0.0)
    ended: list[str] = []

    async def never(request: web.Request) -> web.Response:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.append(request.path)

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/{name}", never)
        runner = PatientRunner(app, most=3, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        place, port = runner.addresses[0][:2]
        async with asyncio.timeout(30):
            kept = [
                await dialled(place, port, f"GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                for name in "abcd"
            ]
            with contextlib.suppress(ConnectionResetError):
                await kept[0][0].read()
            while not ended:
                await asyncio.sleep(0)
            # What was asked for over it is not gone on with.
            assert ended == ["/a"]
            for _, writer in kept:
                writer.close()
        await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    assert not check(host, knows=False, insecure=False, how="it something")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "rm1", "localhost.example"])
def test_beyond_loopback_somebody_has_to_know_or_to_say_so(host: str) -> None:
    assert not check(host, knows=True, insecure=False, how="it something")
    assert check(host, knows=False, insecure=True, how="it something")
    with pytest.raises(InputError, match=r"--host: .* is reached by others.*--insecure"):
        check(host, knows=False, insecure=False, how="it something")


@pytest.mark.slow
@pytest.mark.parametrize("role", ["rm", "nm", "am", "weft.web", "weft.yarn"])
def test_no_part_listens_for_everybody_without_being_told(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--hosting"] if role == "am" else []
    monkeypatch.chdir(tmp_path)
    done = ended(role, "--host=0.0.0.0", "--port=0", "--metrics-port=-1", *more)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --host: 0.0.0.0 is reached by others")
    assert done.stderr.count("\n") == 1
