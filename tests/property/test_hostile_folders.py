"""No work of the file system whose size a task chose is done on an event loop.

Which thread opens, lists and removes is what the interpreter's own audit events say, so nothing
here depends on how quick a disk is.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession

from nm.process.host import ProcessHost
from nm.process.keeping import Keeper
from nm.process.service import NodeService
from weft.model.ids import attempt_id, container_id
from weft.runtime.http_door import Door
from weft.runtime.http_server import serve
from weft.yarn.web import Folder

TOUCHES = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rmdir",
    "os.rename",
    "shutil.rmtree",
}
NAMES, DEPTH = 300, 1_100
_watched: dict[str, Any] = {}


def _hear(event: str, words: tuple[Any, ...]) -> None:
    """Note what the watched thread does while it is watched; there is no way to unhook this."""
    if _watched and event in TOUCHES and threading.get_ident() == _watched["thread"]:
        _watched["seen"].append((event, str(words[0])))


sys.addaudithook(_hear)


@pytest.fixture
def seen() -> Iterator[list[tuple[str, str]]]:
    """What this thread does with files."""
    _watched.update(seen=[], thread=threading.get_ident())
    yield _watched["seen"]
    _watched.clear()


def hostile(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(NAMES):
        (folder / f"{number}").mkdir()
        (folder / f"{number}-{number}-0").mkdir()
    (folder / "stdout").write_bytes(b"x" * 1_000_000)
    place = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)


@pytest.mark.slow
def test_logs_are_read_and_folders_removed_beside_the_loop(
    tmp_path: Path, seen: list[tuple[str, str]]
) -> None:
    async def main() -> None:
        host = ProcessHost(tmp_path, lambda ends: None)
        number = container_id(attempt_id(1, 1), 2)
        folder = host.folder(number)
        hostile(folder)
        seen.clear()
        node = SimpleNamespace(_processes=host, _readers=ThreadPoolExecutor(1))
        read = NodeService.read_log(node, "n1", number, "stdout")  # type: ignore[arg-type]
        assert sum([len(data) async for data, _ in read]) == 1_000_000
        keeper = Keeper(host.root)
        keeper.over(host.application(1))
        await asyncio.sleep(0.01)
        await keeper.finish()
        assert seen == []
        assert os.listdir(folder) == ["stdout"]
        keeper.close()
        await host.close(0.1)

    asyncio.run(main())


@pytest.mark.slow
def test_webhdfs_serves_beside_the_loop(tmp_path: Path, seen: list[tuple[str, str]]) -> None:
    async def main() -> None:
        hostile(tmp_path / "user" / "job")
        runner, port = await serve(Folder(tmp_path).application(Door([])), "127.0.0.1", 0)
        base = f"http://127.0.0.1:{port}/webhdfs/v1/user"
        async with ClientSession() as session:

            async def ask(method: str, path: str, body: bytes = b"") -> bytes:
                async with session.request(method, f"{base}/{path}", data=body) as got:
                    assert got.status < 300, await got.text()
                    return await got.read()

            await ask("GET", "?op=GETHOMEDIRECTORY")
            seen.clear()
            assert (await ask("GET", "job?op=LISTSTATUS")).count(b"pathSuffix") == 2 * NAMES + 2
            summary = await ask("GET", "job?op=GETCONTENTSUMMARY")
            assert b'"fileCount": 1,' in summary
            assert len(await ask("GET", "job/stdout?op=OPEN&offset=7")) == 1_000_000 - 7
            await ask("PUT", "new/file?op=CREATE&data=true&permission=600", b"y" * 100_000)
            await ask("POST", "new/file?op=APPEND&data=true", b"z")
            await ask("PUT", "new/file?op=RENAME&destination=/user/moved")
            assert (await ask("GET", "moved?op=OPEN"))[-2:] == b"yz"
            assert b"true" in await ask("DELETE", "job?op=DELETE&recursive=true")
            assert b"false" in await ask("DELETE", "job?op=DELETE&recursive=true")
            assert seen == []
        await runner.cleanup()

    asyncio.run(main())
