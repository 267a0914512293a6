"""WebHDFS over a folder, as Hadoop's clients of several versions ask for it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import ClientSession

from weft.hadoop.web import Folder, serve


def talk(root: Path, conversation: Callable[[ClientSession, str], Awaitable[None]]) -> None:
    async def both() -> None:
        runner, port = await serve(Folder(root).application(), "127.0.0.1", 0)
        async with ClientSession() as session:
            await conversation(session, f"http://127.0.0.1:{port}/webhdfs/v1")
        await runner.cleanup()

    asyncio.run(asyncio.wait_for(both(), 20))


def test_java_gets_json_without_a_type_and_others_with_one(tmp_path: Path) -> None:
    """Hadoop 3.5.0's client fails on any type; without one it reads what it gets."""
    (tmp_path / "f").write_text("data")

    async def conversation(session: ClientSession, base: str) -> None:
        for path, status in (("f", 200), ("nothing", 404)):
            for agent, kind in (("Java/17.0.15", None), ("curl/8", "application/json")):
                url = f"{base}/{path}?op=GETFILESTATUS"
                async with session.get(url, headers={"User-Agent": agent}) as got:
                    assert got.status == status
                    told = (got.headers.get("Content-Type") or "").partition(";")[0] or None
                    assert told == kind
                    assert await got.json(content_type=None)
        async with session.get(f"{base}/f?op=OPEN", headers={"User-Agent": "Java/17"}) as got:
            assert await got.read() == b"data"

    talk(tmp_path, conversation)


def test_no_name_leaves_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("no")
    (root / "link").symlink_to(tmp_path / "secret")

    async def conversation(session: ClientSession, base: str) -> None:
        for name in ("..%2Fsecret", "a/..%2F..%2Fsecret", "link", "%2e%2e/secret", "x%00"):
            for op in ("OPEN", "GETFILESTATUS", "LISTSTATUS"):
                async with session.get(f"{base}/{name}?op={op}") as got:
                    assert got.status in (403, 404, 400), name
                    assert await got.read() != b"no"
            async with session.delete(f"{base}/{name}?op=DELETE&recursive=true"):
                pass
        assert (tmp_path / "secret").exists()

    talk(root, conversation)
