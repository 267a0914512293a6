"""`mapreduce_shuffle`: the outputs of maps (and of Tez's vertices) for those who reduce them.

Hadoop's own protocol, version 1.0.0, as its `ShuffleHandler` serves it: `GET /mapOutput?job=...&
reduce=...&map=A,B`, whose address the caller signs with the job's token (`UrlHash`); the answer
signs that (`ReplyHash`) and has for each map a header and one part of its output, where the index
beside it says. A task writes both below its LOCAL_DIRS: `output/<map>/file.out`, `file.out.index`.
"""

import asyncio
import hmac
import io
import os
import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from aiohttp import web

from weft.yarn.launches import SHUFFLE
from weft.yarn.tokens import read_token, write_text, write_vint
from weft.yarn.wary import open_file, open_folder

T = TypeVar("T")
VERSION = {"name": "mapreduce", "version": "1.0.0"}
THREADS = 4
CHUNK = 1 << 16
# Hadoop's reducers ask for 20 at a time.
MAPS_MAX = 1_000
REDUCES_MAX = 100_000
JOB = re.compile(r"job_(\d{1,20}_\d{1,10})", re.ASCII)
MAP = re.compile(r"attempt_[A-Za-z0-9_]{1,200}", re.ASCII)
# Where a part begins, its bytes when unpacked, and its bytes as they lie there.
RECORD = struct.Struct(">qqq")
CHECKSUM = struct.Struct(">q")


class Part(NamedTuple):
    """What one map has for one reducer; `folder` is that of the map's output."""

    folder: Path
    # When the output was written.
    written_ns: int
    begin: int
    size: int
    header: bytes


class Refused(Exception):
    """A request that is answered with a status and words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Shuffle:
    """The service: who may have what, and the parts themselves."""

    name = SHUFFLE

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS, "shuffle")
        # Callers sign it, too; known once the server listens.
        self.port = 0
        # By an application's folder on a node.
        self._keys: dict[Path, bytes] = {}
        self._find: Callable[[str], list[Path]] = lambda name: []

    # -- as an auxiliary service -------------------------------------------------------------------

    def initialize_application(self, told: Any) -> None:
        """Take an application's job token; raises ValueError."""
        self._keys[told.folder] = read_token(io.BytesIO(told.data)).password

    def stop_application(self, folder: Path) -> None:
        """Forget an application's token."""
        self._keys.pop(folder, None)

    # -- over HTTP ---------------------------------------------------------------------------------

    def add_to(self, app: web.Application, find: Callable[[str], list[Path]]) -> None:
        """Serve in an application; `find` tells of an application's folders, and blocks."""
        self._find = find
        app.router.add_get("/mapOutput", self._serve, allow_head=False)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            name, reduce, maps = _read(request)
            folders = await self._apart(self._find, name)
            signed = request.headers.get("UrlHash", "").encode("utf-8", "replace")
            key, folders = self._verified(f"{self.port}{request.raw_path}", signed, folders)
            parts = await self._apart(_parts, folders, reduce, maps)
        except Refused as refused:
            answer = web.Response(status=refused.status, text=str(refused), headers=VERSION)
            answer.force_close()
            return answer
        return await self._send(request, parts, _hash(key, signed))

    def _verified(
        self, address: str, signed: bytes, folders: list[Path]
    ) -> tuple[bytes, list[Path]]:
        """Return the key of a caller's application, and the folders that it opens."""
        keys = [(self._keys[folder], folder) for folder in folders if folder in self._keys]
        if not keys:
            raise Refused(401, "Could not find jobid")
        if not signed:
            raise Refused(401, "fetcher cannot be authenticated")
        own = [
            (key, folder)
            for key, folder in keys
            if hmac.compare_digest(_hash(key, address.encode()), signed)
        ]
        if not own:
            raise Refused(401, "Verification of the hashReply failed")
        return own[0][0], [folder for _, folder in own]

    async def _send(
        self, request: web.Request, parts: list[Part], hash_: bytes
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**VERSION, "ReplyHash": hash_.decode()})
        answer.content_length = sum(len(part.header) + part.size for part in parts)
        if request.query.get("keepAlive", "").lower() != "true":
            answer.force_close()
        await answer.prepare(request)
        for part in parts:
            await answer.write(part.header)
            await self._send_part(answer, part)
        await answer.write_eof()
        return answer

    async def _send_part(self, answer: web.StreamResponse, part: Part) -> None:
        """Send a part in pieces; raises OSError for a file that is not what it was."""
        file = await self._apart(_open, part.folder, part.written_ns)
        try:
            at, left = part.begin, part.size
            while left > 0:
                data = await self._apart(os.pread, file, min(CHUNK, left), at)
                if not data:
                    raise OSError(f"{part.folder.name} was cut")
                at, left = at + len(data), left - len(data)
                await answer.write(data)
        finally:
            os.close(file)

    async def _apart(self, act: Callable[..., T], *words: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, act, *words)


def _read(request: web.Request) -> tuple[str, int, list[str]]:
    """Return the application, the reducer and the maps that a request names; raises Refused."""
    if any(request.headers.get(name) != value for name, value in VERSION.items()):
        raise Refused(400, "Incompatible shuffle request version")
    query = request.query
    if not all(name in query for name in ("job", "reduce", "map")):
        raise Refused(400, "Required param job, map and reduce")
    if len(query.getall("job")) > 1 or len(query.getall("reduce")) > 1:
        raise Refused(400, "Too many job/reduce parameters")
    job = JOB.fullmatch(query["job"])
    if job is None:
        raise Refused(400, "Bad job parameter")
    reduce = query["reduce"]
    if not (reduce.isascii() and reduce.isdigit() and len(reduce) < 10):
        raise Refused(400, "Bad reduce parameter")
    maps = [name for text in query.getall("map") for name in text.split(",")]
    if len(maps) > MAPS_MAX or not all(MAP.fullmatch(name) for name in maps):
        raise Refused(400, "Bad map parameter")
    return f"application_{job[1]}", int(reduce), maps


def _hash(key: bytes, text: bytes) -> bytes:
    return b64encode(hmac.digest(key, text, "sha1"))


# -- files: on a thread ----------------------------------------------------------------------------


def _parts(folders: list[Path], reduce: int, maps: list[str]) -> list[Part]:
    """Return the part of each map; raises Refused where one is not to be had."""
    return [_part(folders, reduce, name) for name in maps]


def _part(folders: list[Path], reduce: int, name: str) -> Part:
    problem, found = "there is none", []
    for folder in folders:
        output = folder / "local" / "output" / name
        try:
            found.append(_read_index(output, reduce, name))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
    if found:
        # A master that started anew gives its tasks the names of before: the last one counts.
        return max(found, key=lambda part: part.written_ns)
    raise Refused(500, f"the output of {name}: {problem}")


def _read_index(output: Path, reduce: int, name: str) -> Part:
    """Return a reducer's part of an output.

    Raises OSError, and ValueError for an index that is no such thing or leads out of the output.
    """
    place = _open_output(output)
    try:
        file, found = open_file(place, "file.out.index")
        try:
            count, rest = divmod(found.st_size - CHECKSUM.size, RECORD.size)
            if rest or not 0 <= count <= REDUCES_MAX:
                raise ValueError("its index has an odd size")
            data = os.pread(file, found.st_size, 0)
        finally:
            os.close(file)
        file, found = open_file(place, "file.out")
        os.close(file)
    finally:
        os.close(place)
    records = data[: -CHECKSUM.size]
    if len(data) < CHECKSUM.size or zlib.crc32(records) != CHECKSUM.unpack(data[len(records) :])[0]:
        raise ValueError("its index has another checksum")
    if reduce >= len(records) // RECORD.size:
        raise ValueError(f"its index has no reducer {reduce}")
    begin, unpacked, size = RECORD.unpack_from(records, reduce * RECORD.size)
    if min(begin, unpacked, size) < 0 or begin + size > found.st_size:
        raise ValueError("its index leads out of the output")
    first = header(name, size, unpacked, reduce)
    return Part(output, found.st_mtime_ns, begin, size, first)


def header(name: str, size: int, unpacked: int, reduce: int) -> bytes:
    """Return what comes before a part (`ShuffleHeader`)."""
    return write_text(name) + write_vint(size) + write_vint(unpacked) + write_vint(reduce)


def _open(output: Path, written_ns: int) -> int:
    """Return an output, open; raises OSError where it was written anew since its index was read."""
    place = _open_output(output)
    try:
        file, found = open_file(place, "file.out")
    finally:
        os.close(place)
    if found.st_mtime_ns != written_ns:
        os.close(file)
        raise OSError(f"{output.name} was written anew")
    return file


def _open_output(output: Path) -> int:
    """Return the folder of a map's output, open; nothing below the application's may be a link."""
    home = output.parents[2]
    return open_folder(home, output.relative_to(home).parts)
