"""WebHDFS over a folder, as Hadoop's clients of several versions ask for it."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession
from yarl import URL

from weft.runtime.http_door import Door
from weft.runtime.http_server import serve
from weft.yarn.web import Folder


def talk(root: Path, conversation: Callable[[ClientSession, str], Awaitable[None]]) -> None:
    async def both() -> None:
        runner, port = await serve(Folder(root).application(Door([])), "127.0.0.1", 0)
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


def test_a_name_may_begin_with_any_number_of_slashes(tmp_path: Path) -> None:
    for slashes in ("", "/", "//", "///"):
        assert Folder(tmp_path).place(f"{slashes}a/b") == tmp_path / "a/b"
    assert Folder(tmp_path).place("//") == tmp_path


def test_results_are_committed_by_renames_as_hadoops_committer_does(tmp_path: Path) -> None:
    """A task's folder becomes the job's, a file moves into a folder that is there; else false."""

    async def conversation(session: ClientSession, base: str) -> None:
        async def put(name: str, query: str, data: bytes = b"") -> object:
            async with session.put(f"{base}/{name}?op={query}", data=data) as got:
                assert got.status in (200, 201), await got.text()
                return (await got.json())["boolean"] if got.status == 200 else True

        task = "out/_temporary/0/_temporary/attempt_1"
        await put(f"{task}/part-00000", "CREATE&data=true", b"rows")
        assert await put(task, "RENAME&destination=/out/_temporary/0/task_1") is True
        kept = "out/_temporary/0/task_1/part-00000"
        assert await put(kept, "RENAME&destination=/out/part-00000") is True
        assert (tmp_path / "out/part-00000").read_bytes() == b"rows"
        await put("folder", "MKDIRS")
        assert await put("out/part-00000", "RENAME&destination=/folder") is True
        assert (tmp_path / "folder/part-00000").read_bytes() == b"rows"
        for source, to in (
            ("nothing", "/x"),
            ("folder/part-00000", "/no/such/folder"),
            ("out", "/out/inside"),
            ("folder", "/folder"),
            ("folder", "/folder/part-00000"),
        ):
            assert await put(source, f"RENAME&destination={to}") is False, (source, to)
        assert (tmp_path / "folder/part-00000").exists()
        async with session.put(f"{base}/folder?op=RENAME&destination=/../x") as got:
            assert got.status == 403

    talk(tmp_path, conversation)


def test_a_rename_replaces_nothing_unless_it_says_so(tmp_path: Path) -> None:
    """As HDFS: false for what is there; with options an error, or the file is replaced."""
    for name, text in (("a/f", "new"), ("b/f", "old"), ("c/a/z", "z"), ("g", "g"), ("h", "h")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "alias").symlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to("loop")

    async def conversation(session: ClientSession, base: str) -> None:
        async def rename(name: str, query: str) -> tuple[int, str]:
            async with session.put(f"{base}/{name}?op=RENAME{query}") as got:
                return got.status, (await got.text())[:16]

        for name, to in (("a/f", "/b"), ("a", "/c"), ("a", "/alias/in")):
            assert await rename(name, f"&destination={to}") == (200, '{"boolean": fals'), name
        assert (tmp_path / "b/f").read_text() == "old"
        for query in ("", "&destination=", "&destination=x"):
            assert (await rename("a/f", query))[0] == 400, query
        assert (await rename("a/f", "&destination=/loop/x"))[0] == 403
        assert (await rename("g", "&destination=/h&renameoptions=NONE"))[0] == 403
        assert (await rename("g", "&destination=/a&renameoptions=OVERWRITE"))[0] == 403
        assert (tmp_path / "h").read_text() == "h"
        assert await rename("g", "&destination=/h&renameoptions=OVERWRITE") == (200, "")
        assert (tmp_path / "h").read_text() == "g"
        async with session.get(f"{base}/?op=LISTSTATUS") as got:  # a broken link hides no other
            names = [one["pathSuffix"] for one in (await got.json())["FileStatuses"]["FileStatus"]]
        assert names == ["a", "alias", "b", "c", "h"]
        os.mkfifo(tmp_path / "pipe")
        async with session.get(f"{base}/pipe?op=OPEN") as got:
            assert got.status == 403

    talk(tmp_path, conversation)


def test_what_is_no_file_is_neither_written_nor_waited_for(tmp_path: Path) -> None:
    """A pipe waits for who reads it, and what a socket or a device is for is not ours to end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    names = ["pipe", "to-pipe", "socket"]
    with contextlib.suppress(PermissionError):
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        names.append("device")
    before = {name: (tmp_path / name).lstat() for name in names}

    async def conversation(session: ClientSession, base: str) -> None:
        for name in names:
            for method, op in (("PUT", "CREATE"), ("POST", "APPEND"), ("GET", "OPEN")):
                url = f"{base}/{name}?op={op}&data=true"
                async with session.request(method, url, data=b"x") as got:
                    told = await got.json()
                    assert got.status == 403, (name, op, told)
                    assert told["RemoteException"]["exception"] == "AccessControlException"
                url = f"{base}/{name}/below?op={op}&data=true"
                async with session.request(method, url, data=b"x") as got:
                    assert got.status in (403, 404), (name, op)

    talk(tmp_path, conversation)
    assert {name: (tmp_path / name).lstat() for name in names} == before


def test_names_that_cannot_be_are_refused_as_hdfs_does(tmp_path: Path) -> None:
    """As long as one may be is not too long, also while the file is on its way."""
    long, too_long = "x" * 255, "x" * 256
    too_deep = "/".join(["y" * 100] * 60)
    refused = {
        too_long: "PathComponentTooLongException",
        f"a/{too_long}/b": "PathComponentTooLongException",
        "\u00e9" * 128: "PathComponentTooLongException",
        too_deep: "IOException",
        "a%00b": "AccessControlException",
    }
    calls = (
        *(("PUT", op) for op in ("CREATE", "MKDIRS", "SETPERMISSION", "SETTIMES", "SETOWNER")),
        *(("GET", op) for op in ("OPEN", "GETFILESTATUS", "LISTSTATUS", "GETCONTENTSUMMARY")),
        *(("POST", "APPEND"), ("DELETE", "DELETE")),
    )

    async def conversation(session: ClientSession, base: str) -> None:
        async with session.put(f"{base}/{long}?op=CREATE&data=true", data=b"x") as got:
            assert got.status == 201
        for name, exception in refused.items():
            for method, op in calls:
                url = URL(f"{base}/{name}?op={op}&data=true", encoded="%" in name)
                async with session.request(method, url) as got:
                    told = await got.json()
                    assert got.status == 403, (name[:10], op, told)
                    assert told["RemoteException"]["exception"] == exception, (name[:10], op)
            url = URL(f"{base}/{long}?op=RENAME&destination=/{name}", encoded="%" in name)
            async with session.put(url) as got:
                assert got.status == 403, name[:10]

    talk(tmp_path, conversation)
    assert [one.name for one in tmp_path.iterdir()] == [long]


def test_a_file_is_there_as_soon_as_it_is_begun_and_its_mode_may_be_changed_meanwhile(
    tmp_path: Path,
) -> None:
    """MapReduce sets the mode of a job's files while it writes them, as HDFS has it."""

    async def conversation(session: ClientSession, base: str) -> None:
        url = f"{base}/a/f?op=CREATE&overwrite=false&permission=644"
        async with session.put(url, allow_redirects=False) as got:
            assert got.status == 307
            where = got.headers["Location"]
        async with session.put(url, allow_redirects=False) as got:
            assert got.status == 403, "it is there already"
        assert (tmp_path / "a" / "f").read_bytes() == b""
        async with session.put(f"{base}/a/f?op=SETPERMISSION&permission=640") as got:
            assert got.status == 200
        async with session.put(URL(where, encoded=True), data=b"data") as got:
            assert got.status == 201
        assert (tmp_path / "a" / "f").read_bytes() == b"data"
        assert stat.S_IMODE((tmp_path / "a" / "f").stat().st_mode) == 0o640

    talk(tmp_path, conversation)


def test_a_file_is_its_callers_own_and_lies_in_one_piece(tmp_path: Path) -> None:
    """MapReduce wants its user to own the folder of its jobs, and splits files by their blocks."""
    (tmp_path / "f").write_text("data")

    async def conversation(session: ClientSession, base: str) -> None:
        for user, owner in (("&user.name=ada", "ada"), ("", "weft")):
            async with session.get(f"{base}/f?op=GETFILESTATUS{user}") as got:
                assert (await got.json())["FileStatus"]["owner"] == owner
            async with session.get(f"{base}/?op=LISTSTATUS{user}") as got:
                (one,) = (await got.json())["FileStatuses"]["FileStatus"]
                assert one["owner"] == owner
        async with session.get(f"{base}/f?op=GETFILEBLOCKLOCATIONS&offset=0&length=4") as got:
            (one,) = (await got.json())["BlockLocations"]["BlockLocation"]
            assert (one["offset"], one["length"], one["hosts"]) == (0, 4, [])
        for name in ("none", ""):
            async with session.get(f"{base}/{name}?op=GETFILEBLOCKLOCATIONS") as got:
                assert got.status == 404

    talk(tmp_path, conversation)


def test_a_file_that_cannot_be_read_on_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of an error would be taken for bytes of the file."""
    (tmp_path / "f").write_bytes(bytes(3 << 20))
    real = os.pread

    def pread(file: int, size: int, at: int) -> bytes:
        if at:
            raise OSError(5, "the disk is broken")
        return real(file, size, at)

    monkeypatch.setattr(os, "pread", pread)

    async def conversation(session: ClientSession, base: str) -> None:
        async with session.get(f"{base}/f?op=OPEN") as got:
            with pytest.raises(ClientError):
                await got.read()

    talk(tmp_path, conversation)
