"""`mapreduce_shuffle`: bytes as Hadoop's own classes make them, and callers that it does not serve.

The token, the hashes, the header and the index were written by Hadoop 3.4.1 (`Token.write`,
`SecureShuffleUtils`, `ShuffleHeader.write`, `SpillRecord.writeToFile`).
"""

import asyncio
import json
import os
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession
from yarl import URL

from testkit.hadoop import FakeManager, foreign_master
from weft.runtime.http_door import Door
from weft.runtime.http_server import serve
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import launcher, rpc, shuffle
from weft.yarn.nodes import NodeFace
from weft.yarn.services import Folders, services_application
from weft.yarn.shuffle import Shuffle
from weft.yarn.store import Store
from weft.yarn.tokens import NODE, TokenKeeper, token

TOKEN = bytes.fromhex(
    "0b0a6a6f625f375f30303033147477656e7479206279746573206f66206b6579210d6d6170726564756365"
    "2e6a6f620a6a6f625f375f30303033"
)
ASKED = "/mapOutput?job=job_7_0003&reduce=1&map=attempt_7_0003_m_000000_0,attempt_7_0003_m_000001_0"
URL_HASH, REPLY_HASH = "6lq0tkUsAXcVrhmEhs/9K3Xioag=", "lWV+4eoddj95pGpiGGGHiFb+rcE="
HEADER = bytes.fromhex("19617474656d70745f375f303030335f6d5f3030303030305f308e012c8d01117001")
INDEX = bytes.fromhex(
    "00000000000000000000000000000009000000000000000500000000000000050000000000011170"
    "000000000000012c00000000d0853fa7"
)
PART = bytes(range(100)) * 3
HEADERS = {"name": "mapreduce", "version": "1.0.0", "UrlHash": URL_HASH}
APP = "application_7_0003"
Call = Callable[..., Awaitable[tuple[int, bytes, Any]]]


def told(home: Path, data: bytes = TOKEN) -> None:
    """Have the launcher of a container tell the node's services of its application."""
    home.mkdir(parents=True, exist_ok=True)
    os.environ["WEFT_CONTAINER"] = "container_7_0003_01_000002"
    services = {"mapreduce_shuffle": b64encode(data).decode()}
    launcher.tell_services({"user": "ada", "services": services}, home)


def mapped(home: Path, number: int, index: bytes = INDEX) -> Path:
    """Have a map write its output."""
    output = home / "local" / "output" / f"attempt_7_0003_m_00000{number}_0"
    output.mkdir(parents=True)
    (output / "file.out").write_bytes(b"first" + PART)
    (output / "file.out.index").write_bytes(index)
    return output


def talk(work: Path, conversation: Callable[[Call, Folders], Awaitable[None]]) -> None:
    async def both() -> None:
        service = Shuffle()
        folders = Folders(work, service)
        app = services_application(Door([]), service, folders, "http://pages:1")
        runner, port = await serve(app, "127.0.0.1", 0)
        service.port = 13562

        async def call(path: str = ASKED, method: str = "GET", **headers: str) -> Any:
            sent = {name: value for name, value in (HEADERS | headers).items() if value}
            url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
            async with session.request(method, url, headers=sent, allow_redirects=False) as got:
                return got.status, await got.read(), got.headers

        async with ClientSession() as session:
            await conversation(call, folders)
        await runner.cleanup()

    asyncio.run(asyncio.wait_for(both(), 30))


def test_a_reducer_is_given_its_part_of_each_map_as_hadoops_own_service_gives_it(
    tmp_path: Path,
) -> None:
    """Of two nodes of this host each has run one of the maps."""
    for number in (0, 1):
        home = tmp_path / f"n{number}" / APP
        told(home)
        mapped(home, number)

    async def conversation(call: Call, folders: Folders) -> None:
        status, data, headers = await call()
        assert status == 200
        assert data == HEADER + PART + HEADER.replace(b"m_000000", b"m_000001") + PART
        assert headers["ReplyHash"] == REPLY_HASH
        assert (headers["name"], headers["version"]) == ("mapreduce", "1.0.0")
        assert headers["Content-Length"] == str(len(data))

    talk(tmp_path, conversation)


def test_who_has_no_valid_hash_is_refused_before_any_output_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "n1" / APP
    told(home)
    monkeypatch.setattr(shuffle, "_parts", None)

    async def conversation(call: Call, folders: Folders) -> None:
        for changed in ("", "6lq0tkUsAXcVrhmEhs/9K3Xioah=", "\udcff", "x" * 4_000):
            value = changed.encode("utf-8", "replace").decode()
            status, data, headers = await call(UrlHash=value)
            assert (status, headers.get("ReplyHash")) == (401, None), data
        other = ASKED.replace("reduce=1", "reduce=0")
        assert (await call(other))[0] == 401, "the hash is of another address"
        assert (await call(ASKED.replace("_7_0003&", "_7_0004&")))[0] == 401, "another job"

    talk(tmp_path, conversation)


def test_a_request_that_is_none_of_the_protocol_is_refused(tmp_path: Path) -> None:
    told(tmp_path / "n1" / APP)

    async def conversation(call: Call, folders: Folders) -> None:
        assert (await call(name=""))[0] == 400
        assert (await call(version="2.0.0"))[0] == 400
        assert (await call(method="POST"))[0] in (403, 405)
        for old, new in (
            ("reduce=1", "reduce=-1"),
            ("reduce=1", "reduce=99999999999999999999"),
            ("reduce=1", "reduce=1&reduce=1"),
            ("reduce=1", "x=1"),
            ("job_7_0003&", "job_..%2F7_0003&"),
            ("job_7_0003&", "7&"),
            ("attempt_7_0003_m_000000_0,", "..%2F..%2Fsecret,"),
            ("attempt_7_0003_m_000000_0,", "attempt_%2e%2e/x,"),
            ("attempt_7_0003_m_000000_0,", ","),
            ("attempt_7_0003_m_000000_0,", "attempt_1," * 1_001),
        ):
            status, data, _ = await call(ASKED.replace(old, new))
            assert status == 400, (new[:40], data)

    talk(tmp_path, conversation)


def spoil_link(output: Path) -> None:
    (output.parents[3] / "secret").write_bytes(b"first" + PART)
    (output / "file.out").unlink()
    (output / "file.out").symlink_to(output.parents[3] / "secret")


def spoil_folder(output: Path) -> None:
    elsewhere = output.parents[3] / "elsewhere"
    output.rename(elsewhere)
    output.symlink_to(elsewhere)


def spoil_name(output: Path) -> None:
    os.link(output / "file.out", output.parents[3] / "secret")


def spoil_pipe(output: Path) -> None:
    (output / "file.out").unlink()
    os.mkfifo(output / "file.out")


def spoil_index(output: Path) -> None:
    (output / "file.out.index").write_bytes(INDEX[:-1] + b"\0")


def spoil_size(output: Path) -> None:
    (output / "file.out.index").write_bytes(INDEX[:-3])


def spoil_cut(output: Path) -> None:
    (output / "file.out").write_bytes(b"first")


def spoil_all(output: Path) -> None:
    (output / "file.out").unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_link,
        spoil_folder,
        spoil_name,
        spoil_pipe,
        spoil_index,
        spoil_size,
        spoil_cut,
        spoil_all,
    ],
)
def test_an_output_that_is_not_the_applications_own_or_whole_is_an_error_and_no_bytes(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    home = tmp_path / "n1" / APP
    told(home)
    mapped(home, 0)
    spoil(mapped(home, 1))

    async def conversation(call: Call, folders: Folders) -> None:
        status, data, headers = await call()
        assert status == 500
        assert b"attempt_7_0003_m_000001_0" in data
        assert PART not in data
        assert "ReplyHash" not in headers
        assert headers["version"] == "1.0.0"

    talk(tmp_path, conversation)


def test_a_token_that_cannot_be_read_or_is_another_file_opens_nothing(tmp_path: Path) -> None:
    home = tmp_path / "n1" / APP
    mapped(home, 0)
    mapped(home, 1)
    told(home, b"\x7f")
    place = home / "services" / "mapreduce_shuffle"

    async def conversation(call: Call, folders: Folders) -> None:
        assert (await call())[0] == 401, "no token"
        for text in ("", "[]", '{"user": "ada"}', '{"user": "ada", "data": "!"}', "\xff" * 100_000):
            place.write_text(text, "latin-1")
            assert (await call())[0] == 401, text[:40]
        place.unlink()
        secret = tmp_path / "secret"
        secret.write_text(json.dumps({"user": "ada", "data": b64encode(TOKEN).decode()}))
        place.symlink_to(secret)
        assert (await call())[0] == 401, "a link"

    talk(tmp_path, conversation)


def test_nothing_is_served_or_known_of_an_application_that_is_over(tmp_path: Path) -> None:
    home = tmp_path / "n1" / APP
    told(home)
    mapped(home, 0)
    mapped(home, 1)

    async def conversation(call: Call, folders: Folders) -> None:
        assert (await call())[0] == 200
        (home / "services" / "mapreduce_shuffle").unlink()
        assert (await call())[0] == 401
        folders.sweep()
        service = folders._service
        assert isinstance(service, Shuffle)
        assert not service._keys
        assert not folders._known
        told(home)
        assert (await call())[0] == 200, "told again"

    talk(tmp_path, conversation)


def test_of_two_outputs_of_one_name_the_last_counts(tmp_path: Path) -> None:
    """A master that started anew gives its tasks the names of before, maybe on another node."""
    for node, age_s in (("n1", 0), ("n2", 10), ("n3", 5)):
        home = tmp_path / node / APP
        told(home)
        for number in (0, 1):
            output = mapped(home, number) / "file.out"
            output.write_bytes(b"first" + PART.replace(b"\0", node[1].encode()))
            os.utime(output, (age_s + 100, age_s + 100))

    async def conversation(call: Call, folders: Folders) -> None:
        _, data, _ = await call()
        assert data.count(PART.replace(b"\0", b"2")) == 2

    talk(tmp_path, conversation)


@pytest.mark.parametrize("gone", [False, True])
def test_an_output_that_changes_on_its_way_ends_the_connection(
    gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else may come for what was promised: it would be taken for the part."""
    home = tmp_path / "n1" / APP
    told(home)
    outputs = [mapped(home, number) / "file.out" for number in (0, 1)]
    ready = shuffle._parts

    def then_changed(*words: Any) -> Any:
        parts = ready(*words)
        outputs[1].unlink()
        if not gone:
            outputs[1].write_bytes(b"other" + PART)
            os.utime(outputs[1], (1, 1))
        return parts

    monkeypatch.setattr(shuffle, "_parts", then_changed)

    async def conversation(call: Call, folders: Folders) -> None:
        with pytest.raises(ClientError):
            await call()

    talk(tmp_path, conversation)


def test_files_are_read_on_threads_and_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "n1" / APP
    told(home)
    mapped(home, 0)
    mapped(home, 1)
    sizes: list[int] = []

    def pread(file: int, size: int, at: int, real: Callable[..., bytes] = os.pread) -> bytes:
        assert threading.current_thread().name.startswith("shuffle")
        sizes.append(size)
        return real(file, size, at)

    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(shuffle, "CHUNK", 64)

    async def conversation(call: Call, folders: Folders) -> None:
        _, data, _ = await call()
        assert data.count(PART) == 2
        assert sizes[-5:] == [64, 64, 64, 64, 44]

    talk(tmp_path, conversation)


def test_a_master_is_told_of_a_nodes_services_and_refused_what_it_has_not(tmp_path: Path) -> None:
    """Its words to a service come to the launcher, which leaves them where the service looks."""
    keeper, store, started = TokenKeeper(), Store(tmp_path), []

    async def start(*what: Any) -> str:
        started.append(what)
        return ""

    face = NodeFace(
        "n1",
        keeper,
        store,
        start,
        lambda order: None,
        lambda number: None,  # type: ignore[arg-type, return-value]
        lambda: ("vcores", "memory_mb"),
        lambda name: (),
        lambda: 7,
        {"mapreduce_shuffle": (13562).to_bytes(4, "big")},
    )
    attempt = pb.AttemptId(application=pb.ApplicationId(id=3, cluster_timestamp=7), attempt=1)
    caller = rpc.Caller(peer="here", kind=NODE)
    caller.identifier = keeper.node(attempt, pb.NodeId(host="h", port=1), "ada").identifier
    request = pb.StartContainers()
    for number, name in ((2, "mapreduce_shuffle"), (3, "other_shuffle")):
        identifier = pb.ContainerTokenIdentifier(
            container=pb.ContainerId(id=number, attempt=attempt),
            resource=pb.Resource(memory=128, virtual_cores=1),
            expiry_time=1 << 60,
        )
        one = request.items.add(token=token(keeper.container(identifier), "h:1"))
        one.context.service_data.add(key=name, value=TOKEN)

    async def conversation() -> None:
        answer = await face.protocol()["startContainers"].handler(caller, request)
        assert [(one.key, one.value) for one in answer.services] == [
            ("mapreduce_shuffle", b"\0\0\x34\xfa")
        ]
        assert [one.id for one in answer.succeeded] == [2]
        assert len(started) == 1
        (failed,) = answer.failed
        assert failed.error.class_name.endswith(".InvalidAuxServiceException")
        assert failed.error.message == "The auxService:other_shuffle does not exist"
        said = store.launch(3, "container_7_0003_01_000002")
        assert said is not None
        assert said["services"] == {"mapreduce_shuffle": b64encode(TOKEN).decode()}

    asyncio.run(asyncio.wait_for(conversation(), 20))


@pytest.mark.parametrize(
    ("version", "opens"), [("1.8.0_402", False), ("17.0.15", True), ("11.0.2", False), ("", False)]
)
def test_a_java_that_keeps_its_classes_to_itself_is_told_to_open_them(
    version: str, opens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version:
        (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    line = launcher.expanded("$JAVA_HOME/bin/java <ADD_OPENS> Main 1><LOG_DIR>/stdout", tmp_path)
    assert ("--add-opens=java.base/java.lang=ALL-UNNAMED" in line) == opens
    assert "ADD_OPENS" not in line


def test_a_nodes_pages_are_where_wefts_are(tmp_path: Path) -> None:
    async def conversation(call: Call, folders: Folders) -> None:
        for path in ("/node/containerlogs/container_7_0003_01_000002/ada", "/node"):
            status, _, headers = await call(path)
            assert (status, headers["Location"]) == (307, f"http://pages:1{path}")

    talk(tmp_path, conversation)


def test_a_master_is_told_of_nodes_that_are_lost_and_of_those_that_are_back() -> None:
    """MapReduce and Tez then run anew what the node had of outputs."""
    states = {"n1": "RUNNING", "n2": "LOST"}
    master = foreign_master(FakeManager(), states=states)

    async def conversation() -> None:
        await master.register(pb.Register())
        seen = []
        for number, changed in enumerate(
            ({}, {"n1": "LOST"}, {}, {"n1": "NEW"}, {"n1": "RUNNING"})
        ):
            states.update(changed)
            answer = await master.allocate(pb.Allocate(response_id=number))
            seen.append([one.node.host for one in answer.updated_nodes])
        assert seen == [["n2"], ["n1"], [], [], ["n1"]]

    asyncio.run(asyncio.wait_for(conversation(), 20))
