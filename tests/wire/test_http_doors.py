"""Every HTTP server of the product has the same door: its own names, its own pages, no others."""

import asyncio
import contextlib
import http.client
import re
import socket
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from structlog.testing import capture_logs

from testkit.live import until
from testkit.web import CLUSTER_TS, FakeClient
from weft.runtime import http_server, scrape
from weft.runtime.exposition import Exposition
from weft.runtime.http_door import Door
from weft.runtime.http_server import PatientRunner
from weft.runtime.role_settings import WebSettings
from weft.web.server import make_app
from weft.yarn import web as files_web
from weft.yarn.services import Folders, services_application
from weft.yarn.shuffle import Shuffle
from weft.yarn.web import Folder, launch_application

ROOT = Path(__file__).parents[2]
MAKES = re.compile(r"\b(?:web\.Application|web\.AppRunner|ThreadingHTTPServer|HTTPServer)\(")
Serve = Callable[[Path], AbstractAsyncContextManager[tuple[str, int]]]


@contextlib.asynccontextmanager
async def run(app: web.Application) -> AsyncIterator[tuple[str, int]]:
    runner = PatientRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][:2]
    finally:
        await runner.cleanup()


def pages(folder: Path) -> AbstractAsyncContextManager[tuple[str, int]]:
    return run(make_app(WebSettings(port=0, watch=False), FakeClient(2, 2)))  # type: ignore[arg-type]


def files(folder: Path) -> AbstractAsyncContextManager[tuple[str, int]]:
    return run(Folder(folder).application(Door(["127.0.0.1"])))


def launches(folder: Path) -> AbstractAsyncContextManager[tuple[str, int]]:
    return run(launch_application(None, Door(["127.0.0.1"])))  # type: ignore[arg-type]


def services(folder: Path) -> AbstractAsyncContextManager[tuple[str, int]]:
    shuffle = Shuffle()
    return run(services_application(Door(["127.0.0.1"]), shuffle, Folders(folder, shuffle)))


@contextlib.asynccontextmanager
async def metrics(folder: Path) -> AsyncIterator[tuple[str, int]]:
    host, _, port = Exposition().serve("127.0.0.1", 0).rpartition(":")
    yield host, int(port)


# server -> the file that makes it, how to have one, and what a stranger would like to do there
SERVERS: dict[str, tuple[str, Serve, str, str]] = {
    "pages": ("weft/web/server.py", pages, "GET", "/ws/v1/cluster/info"),
    "WebHDFS": ("weft/yarn/web.py", files, "GET", "/webhdfs/v1/user?op=GETHOMEDIRECTORY"),
    "launcher": ("weft/yarn/web.py", launches, "GET", "/launch/x"),
    "services": ("weft/yarn/services.py", services, "GET", "/mapOutput?job=job_1_0001"),
    "metrics": ("weft/runtime/scrape.py", metrics, "GET", "/metrics"),
}
KILL = '{"state": "KILLED"}'
CHANGES = {
    "pages": ("PUT", f"/ws/v1/cluster/apps/application_{CLUSTER_TS}_0001/state", KILL),
    "WebHDFS": ("POST", "/webhdfs/v1/job.py?op=APPEND&data=true", "import os"),
}
# whoever plays a run makes its pages of the same application
SAME = {"lab/play/server.py"}


def test_the_list_of_servers_is_whole() -> None:
    """Whoever writes another server has it behind the door, and in this list."""
    listed = subprocess.run(
        ["git", "ls-files", "weft", "rm", "am", "nm", "sim", "lab"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    sources = {name: (ROOT / name).read_text() for name in listed if name.endswith(".py")}
    makers = {name for name, text in sources.items() if MAKES.search(text)}
    assert makers == {"weft/runtime/http_server.py"}
    own = {name for name, text in sources.items() if "ThreadingHTTPServer" in text}
    assert own == {"weft/runtime/scrape.py"}
    door = {name for name, text in sources.items() if re.search(r"\bDoor\(", text)}
    served = {file for file, *_ in SERVERS.values()}
    callers = {"weft/yarn/__main__.py"}
    assert door - callers <= served
    patient = {name for name, text in sources.items() if re.search(r"\bPatientRunner\(\n?", text)}
    assert patient - {"weft/runtime/http_server.py"} <= served | SAME
    assert all("make_app(" in sources[name] for name in SAME)


def ask(
    place: tuple[str, int], method: str, path: str, body: str = "", **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*place, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    about = {"Content-Length": str(len(body)), "Content-Type": "application/json"}
    for name, value in {**about, **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders(body.encode())
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    assert answer.headers["X-Content-Type-Options"] == "nosniff" or answer.status in (400, 421)
    return answer.status, text


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_server_answers_to_its_own_names_and_pages_only(name: str, tmp_path: Path) -> None:
    _, serve, method, path = SERVERS[name]
    (tmp_path / "job.py").write_text("print()\n")

    async def main() -> None:
        async with serve(tmp_path) as (host, port):
            place, own = (host, port), f"{host}:{port}"

            async def status(*what: str, **headers: str) -> int:
                found, text = await asyncio.to_thread(ask, place, *what, **headers)
                assert found != 421 or "--allowed-hosts" in text
                return found

            assert await status(method, path, Host=own) not in (403, 404, 421)
            rebound = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
            assert await status(method, path, **rebound) == 421
            assert await status(method, path, Host="") == 421
            assert await status(method, path) in (400, 421)
            for elsewhere in ("http://evil.example", "HTTP://localhost@evil.example:80"):
                for names in ({"Host": own}, {"Host": ""}):
                    assert await status(method, elsewhere + path, **names) == 421, elsewhere
            assert await status(method, f"http://{own}{path}", Host=own) not in (403, 404, 421)
            if name not in CHANGES:
                return
            change = CHANGES[name]
            evil = (
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Origin": f"http://{host}:1"},
                {"Sec_Fetch_Site": "cross-site"},
                {"Sec_Fetch_Site": "same-site"},
            )
            for headers in evil:
                assert await status(*change, Host=own, **headers) == 403, headers
            assert (tmp_path / "job.py").read_text() == "print()\n"
            for headers in ({}, {"Origin": f"http://{own}", "Sec_Fetch_Site": "same-origin"}):
                assert await status(*change, Host=own, **headers) in (200, 202), headers

    asyncio.run(main())


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(("bound", "most"), [("BODIES_BYTES_MAX", 200_000), ("BODIES_MAX", 2)])
def test_bodies_that_do_not_end_make_room_for_others(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, bound, most)
    monkeypatch.setattr(http_server, "UNREAD_BYTES_MAX", 1_000)

    async def main() -> None:
        bodies = http_server.Bodies()

        async def take(request: web.Request) -> web.Response:
            try:
                return web.Response(text=str(len(await bodies.read(request, 1_000_000))))
            except (TimeoutError, ValueError) as error:
                return web.Response(status=503, text=type(error).__name__)

        app = web.Application(middlewares=[])
        app.router.add_post("/", take)
        async with run(app) as (_, port):
            await conversation(port)

    async def conversation(port: int) -> None:
        begun = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
            writer.write(head.encode() + bytes(90_000))
            await writer.drain()
            begun.append((reader, writer))
        assert b"503" in await begun[0][0].readline(), "the oldest"
        async with (
            ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}/", data=bytes(100_000)) as got,
        ):
            assert await got.text() == "100000"
        async with (
            ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}/", data=bytes(1_000_001)) as got,
        ):
            assert await got.text() == "ValueError"
        for _, writer in begun:
            writer.close()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("streamed", [False, True])
def test_answers_that_nobody_takes_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, streamed: bool
) -> None:
    monkeypatch.setattr(http_server, "ANSWERS_BYTES_MAX", 4 << 20 if not streamed else 100)
    monkeypatch.setattr(http_server, "LOOK_S", 0.05)
    size = 16 << 20

    async def give(request: web.Request) -> web.StreamResponse:
        if not streamed:
            return web.Response(body=bytes(size))
        answer = web.StreamResponse()
        answer.content_length = size
        await answer.prepare(request)
        for _ in range(size >> 16):
            await answer.write(bytes(1 << 16))
        await answer.write_eof()
        return answer

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/", give)
        async with run(app) as (_, port):
            await conversation(port)

    async def begin(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        return reader, writer

    async def is_shut(one: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
        """Whether the answer ends before it is whole."""
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while got < size:
                data = await asyncio.wait_for(one[0].read(1 << 20), 10)
                if not data:
                    break
                got += len(data)
        one[1].close()
        return got < size

    async def conversation(port: int) -> None:
        begun = [await begin(port) for _ in range(3)]
        await asyncio.sleep(0.5)
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as got:
            assert len(await got.read()) == size, "who takes it gets it"
        # The last of them as well, unless who took his had taken it all by then.
        assert sum([await is_shut(one) for one in begun]) >= 2
        alone = await begin(port)
        await asyncio.sleep(0.5)
        assert not await is_shut(alone), "it may have any size"
        monkeypatch.setattr(http_server, "ANSWER_TIMEOUT_S", 0.2)
        alone = await begin(port)
        await asyncio.sleep(1.0)
        assert await is_shut(alone), "it took nothing for too long"

    asyncio.run(asyncio.wait_for(main(), 30))
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "head",
    [b"GET * HTTP/1.1\r\nHost: x", b"GET / HTTP/1.1", b"\xff\xfe", GET[:-4] + b"\r\nHost: y"],
)
def test_bytes_that_are_no_request_are_refused_and_logged_nowhere(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> bytes:
        async with run(web.Application()) as (_, port), asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + b"\r\n\r\n")
            answered = await reader.readline()
            writer.close()
            return answered

    assert b" 400 " in asyncio.run(main())
    assert not caplog.text


def test_a_head_of_a_request_that_does_not_end_is_not_kept() -> None:
    """Also of a connection that asked before, and where a whole head has a body after it."""
    long = b"X: " + b"x" * 4_000 + b"\r\n"
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"

    async def main() -> None:
        bodies = http_server.Bodies()

        async def take(request: web.Request) -> web.Response:
            return web.Response(text=str(len(await bodies.read(request, 1_000_000))))

        app = web.Application()
        app.router.add_route("*", "/", take)
        async with run(app) as (_, port), asyncio.timeout(30):
            for before in (b"", GET, post + bytes(100_000)):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(before)
                if before:
                    await reader.readuntil(b"100000" if before != GET else b"\r\n\r\n0")
                writer.write(GET[:-2] + long * 5)
                with contextlib.suppress(ConnectionError):
                    assert await reader.read(1) == b""
                writer.close()

    asyncio.run(main())


def test_a_head_of_a_request_for_metrics_that_does_not_end_is_not_kept() -> None:
    host, _, port = Exposition().serve("127.0.0.1", 0).rpartition(":")
    with socket.create_connection((host, int(port)), 10) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n")
            for number in range(30):
                one.sendall(f"X-{number}: {'x' * 1_000}\r\n".encode())
        with contextlib.suppress(ConnectionError):
            assert one.recv(1_000) == b""


def test_connections_to_metrics_that_say_nothing_make_room_for_others() -> None:
    """Each has a thread and a file of a process that others need, too."""
    host, _, port = Exposition().serve("127.0.0.1", 0).rpartition(":")
    threads = threading.active_count()
    with contextlib.ExitStack() as kept:
        silent = [
            kept.enter_context(socket.create_connection((host, int(port)), 10)) for _ in range(150)
        ]
        for one in silent[:100]:
            assert one.recv(1) == b"", "the oldest are ended"
        most = threads + scrape.CONNECTIONS_MAX + 1
        until(lambda: threading.active_count() <= most, "their threads end")
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as got:
            assert got.status == 200


def test_what_failed_here_is_logged_in_few_words() -> None:
    """However long what the caller chose has made it."""

    async def fail(request: web.Request) -> web.Response:
        error: Exception = RecursionError("deep")
        for _ in range(500):
            above = FileNotFoundError(request.query["name"])
            above.__context__, error = error, above
        raise error

    async def main() -> None:
        app = http_server.application(Door(["127.0.0.1"]))
        app.router.add_get("/{tail:.*}", fail)
        async with run(app) as (host, port), ClientSession() as session:
            url = f"http://{host}:{port}/{'p' * 2_000}?name={'x' * 2_000}"
            async with session.get(url) as got:
                assert (got.status, await got.text()) == (500, "it failed here; the log says why")

    with capture_logs() as said:
        asyncio.run(asyncio.wait_for(main(), 30))
    (line,) = said
    assert "FileNotFoundError" in line["fault"]
    assert len(str(line)) < 2 * http_server.FAULT_TEXT_MAX


def test_a_name_through_thousands_of_folders_is_refused(tmp_path: Path) -> None:
    deep = "d/" * 1_500
    calls = [("PUT", "MKDIRS"), ("GET", "GETFILESTATUS"), ("DELETE", "DELETE"), ("PUT", "CREATE")]

    async def main() -> None:
        async with files(tmp_path) as (host, port), ClientSession() as session:
            for how, op in calls:
                url = f"http://{host}:{port}/webhdfs/v1/{deep}?op={op}&data=true"
                async with session.request(how, url) as got:
                    assert got.status == 400, (op, await got.text())

    asyncio.run(asyncio.wait_for(main(), 30))
    assert not list(tmp_path.iterdir())


def test_a_large_folder_is_told_of_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_web, "NAMES_A_PIECE", 10)
    for number in range(95):
        (tmp_path / f"{number:02}").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")

    async def listed(count: int) -> tuple[list[str], bool]:
        async with files(tmp_path) as (host, port), ClientSession() as session:
            url = f"http://{host}:{port}/webhdfs/v1/?op=LISTSTATUS"
            async with session.get(url) as got:
                found = (await got.json(content_type=None))["FileStatuses"]["FileStatus"]
                assert got.content_type == "application/json"
                return [one["pathSuffix"] for one in found], "Content-Length" in got.headers

    names, whole = asyncio.run(listed(95))
    assert not whole
    assert sorted(names) == [f"{number:02}" for number in range(95)]
    for number in range(5, 95):
        (tmp_path / f"{number:02}").unlink()
    assert asyncio.run(listed(5)) == ([f"{number:02}" for number in range(5)], True)


def test_whoever_has_much_looked_at_or_removed_does_not_hold_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = threading.Event(), []

    def held(path: Path) -> None:
        begun.append(path)
        go_on.wait(20)

    def counted(path: Path) -> Iterator[Counter[str]]:
        held(path)
        yield Counter()

    monkeypatch.setattr(files_web, "_counted", counted)
    monkeypatch.setattr(files_web, "_remove_all", held)

    async def main() -> None:
        async with files(tmp_path) as (host, port), ClientSession() as session:
            base = f"http://{host}:{port}/webhdfs/v1/d"
            calls = [("GET", "GETCONTENTSUMMARY"), ("DELETE", "DELETE&recursive=true")] * 8
            tasks = [asyncio.create_task(session.request(a, f"{base}?op={b}")) for a, b in calls]
            while len(begun) < files_web.SUMMARIES + files_web.REMOVERS:
                await asyncio.sleep(0.01)
            async with session.get(f"{base}?op=GETFILESTATUS") as got:
                assert got.status == 200
            assert not any(task.done() for task in tasks)
            go_on.set()
            for task in tasks:
                (await task).close()

    (tmp_path / "d" / "e").mkdir(parents=True)
    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("how", ["PUT", "POST"])
def test_files_whose_bytes_do_not_come_make_room_for_others(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "UPLOADS_MAX", 3)
    op = {"PUT": "CREATE", "POST": "APPEND"}[how]

    async def main() -> None:
        async with files(tmp_path) as (host, port):
            await conversation(host, port)

    async def conversation(host: str, port: int) -> None:
        begun = []
        for number in range(3):
            (tmp_path / f"f{number}").touch()
            reader, writer = await asyncio.open_connection(host, port)
            head = f"{how} /webhdfs/v1/f{number}?op={op}&data=true HTTP/1.1\r\nHost: {host}\r\n"
            writer.write(f"{head}Content-Length: 1000000\r\n\r\nsome".encode())
            await writer.drain()
            begun.append((reader, writer))
        await asyncio.sleep(0.3)
        (tmp_path / "ours").touch()
        url = f"http://{host}:{port}/webhdfs/v1/ours?op={op}&data=true"
        async with (
            ClientSession() as session,
            session.request(how, url, data=bytes(3 << 20)) as got,
        ):
            assert got.status in (200, 201), await got.text()
        assert (tmp_path / "ours").stat().st_size == 3 << 20
        answers = [asyncio.create_task(reader.readline()) for reader, _ in begun]
        ended, waiting = await asyncio.wait(answers, timeout=10, return_when="FIRST_COMPLETED")
        assert [(await one).split()[1] for one in ended] == [b"500"], "one makes room"
        monkeypatch.setattr(http_server, "UPLOAD_SILENCE_S", 0.2)
        for _, writer in begun:
            writer.write(b"more")
        for one in waiting:
            assert (await asyncio.wait_for(one, 10)).split()[1] == b"500", "silent"
        for _, writer in begun:
            writer.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert not list(tmp_path.glob(".*.part"))
