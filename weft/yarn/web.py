"""HTTP: what launchers fetch, and WebHDFS over a folder, so that no HDFS is needed.

WebHDFS without redirects to other hosts: the port that names a file also serves it. A name stays
under the folder, whatever dots and links it has.
"""

import asyncio
import contextlib
import errno
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from aiohttp import web

from weft.model.errors import InputError, WeftError
from weft.model.ids import DIGITS, attempt_id, container_id
from weft.runtime.http_door import Door
from weft.runtime.http_server import Uploads, application, with_headers
from weft.runtime.removing import Left, remove
from weft.yarn.errors import ACCESS_CONTROL
from weft.yarn.gateway import Gateway

T = TypeVar("T")
THREADS = 4
CHUNK = 1 << 20
# A name may lead through so many, each of so many bytes (NAME_MAX of Linux, and HDFS's default).
FOLDERS_MAX, NAME_BYTES_MAX = 200, 255
# Linux's PATH_MAX, less the zero byte at the end.
PATH_BYTES_MAX = 4095
BLOCK = 128 << 20
_PREFIX = "/webhdfs/v1"
_CONTAINER = re.compile(rf"container_{DIGITS}_({DIGITS})_({DIGITS})_({DIGITS})")
# A folder may have any number of names: so many are looked at before others have their turn.
NAMES_A_PIECE = 1_000
# So many threads look at such folders, and so many remove what is in them; so many summaries are
# made at a time, each of which may know of so many folders that it has not looked at.
WALKERS, REMOVERS, SUMMARIES, FOLDERS_WAITING_MAX = 2, 2, 2, 100_000
# What a caller asks for that cannot be, of which HDFS says IOException with status 403.
_IMPOSSIBLE = frozenset(
    {errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENOTEMPTY}
    | {errno.ENXIO, errno.EXDEV, errno.EBUSY, errno.EILSEQ}
)


class _NameTooLongError(OSError):
    """A part of a name is longer than a file system takes."""


_JAVA_ERROR = {
    _NameTooLongError: (
        403,
        "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException",
    ),
    FileNotFoundError: (404, "java.io.FileNotFoundException"),
    FileExistsError: (403, "org.apache.hadoop.fs.FileAlreadyExistsException"),
    NotADirectoryError: (403, "org.apache.hadoop.fs.ParentNotDirectoryException"),
    PermissionError: (403, ACCESS_CONTROL),
    ValueError: (400, "java.lang.IllegalArgumentException"),
    OverflowError: (400, "java.lang.IllegalArgumentException"),
}


def launch_application(gateway: Gateway, door: Door) -> web.Application:
    """Return the server that launchers ask for what they are to run."""

    async def launch(request: web.Request) -> web.Response:
        name = request.match_info["container"]
        try:
            number = read_name(name)
        except InputError as error:
            return web.Response(status=400, text=str(error))
        ticket = request.headers.get("X-Weft-Ticket", "")
        node = request.headers.get("X-Weft-Node", "")
        # The launcher asks again after status 503.
        try:
            data = await gateway.launch(name, number, node, ticket)
        except WeftError as error:
            return web.Response(status=503, text=str(error))
        if data is None:
            return web.Response(status=403, text="no such container, or not with this ticket")
        return web.json_response(data)

    async def faces(request: web.Request) -> web.Response:
        return web.json_response(gateway.faces())

    app = application(door)
    app.on_response_prepare.append(with_headers)
    app.router.add_get("/launch/{container}", launch)
    app.router.add_get("/faces", faces)
    return app


def read_name(name: str) -> int:
    """Read `container_<ts>_<app>_<attempt>_<number>`; raises InputError."""
    match = _CONTAINER.fullmatch(name)
    if match is None:
        raise InputError("container", f"{name!r:.200} is no container id")
    return container_id(attempt_id(int(match[1]), int(match[2])), int(match[3]))


class Folder:
    """WebHDFS over a folder of this host."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        # how much there is to do in a folder is for whoever filled it to choose: on threads
        self._threads = ThreadPoolExecutor(THREADS, "files")
        self._walkers = ThreadPoolExecutor(WALKERS, "folders")
        self._removers = ThreadPoolExecutor(REMOVERS, "removers")
        self._summaries = asyncio.Semaphore(SUMMARIES)
        self._uploads = Uploads()

    def application(self, door: Door) -> web.Application:
        """Return the server."""
        app = application(door, client_max_size=1 << 40)
        app.on_response_prepare.append(with_headers)
        app.router.add_route("*", _PREFIX + "/{path:.*}", self._serve)
        app.router.add_route("*", _PREFIX, self._serve)
        app.on_response_prepare.append(_without_type)
        return app

    def place(self, name: str) -> Path:
        """Return the file of a name; raises PermissionError for one outside the folder."""
        # two slashes at the beginning would be a root of their own
        parts = [part for part in PurePosixPath(name.lstrip("/")).parts if part != "."]
        if len(parts) > FOLDERS_MAX:
            raise ValueError(f"the name has more than {FOLDERS_MAX} folders")
        if any(len(os.fsencode(part)) > NAME_BYTES_MAX for part in parts):
            text = f"a part of the name is longer than {NAME_BYTES_MAX} bytes"
            raise _NameTooLongError(errno.ENAMETOOLONG, text)
        if ".." in parts or any("\0" in part for part in parts):
            raise PermissionError("the name leaves the file system")
        path = self.root.joinpath(*parts)
        # Since Python 3.14 a path that the system refuses for its length just does not exist.
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        # Where links lead to each other, Python before 3.13 raises RuntimeError; later versions
        # leave such links in the path.
        try:
            resolved = path.resolve()
            looped = any(part.is_symlink() for part in (resolved, *resolved.parents))
        except RuntimeError:
            looped = True
        if looped:
            raise PermissionError("the name is a loop of links")
        if resolved != self.root and self.root not in resolved.parents:
            raise PermissionError("the name leaves the file system")
        return path

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        operation = request.query.get("op", "").upper()
        key, name = (request.method, operation), request.match_info.get("path", "")
        try:
            path = await self._apart(self.place, name)
            if key in self._streams:
                return await self._streams[key](request, path)
            if key not in self._calls:
                raise ValueError(f"{request.method} {operation or '(no op)'} is not served")
            return await self._apart(self._calls[key], request, path)
        except (OSError, ValueError, OverflowError) as error:
            kinds = (kind for kind in _JAVA_ERROR if isinstance(error, kind))
            status = 403 if getattr(error, "errno", 0) in _IMPOSSIBLE else 500
            other = (status, "java.io.IOException")
            status, java_class = _JAVA_ERROR.get(next(kinds, OSError), other)
            body = {
                "exception": re.split(r"[.$]", java_class)[-1],
                "javaClassName": java_class,
                "message": self._words(error, request),
            }
            return web.json_response({"RemoteException": body}, status=status)

    def _words(self, error: Exception, request: web.Request) -> str:
        text = getattr(error, "strerror", None) or str(error)
        return f"{request.match_info.get('path', '')}: {text}"

    async def _apart(self, act: Callable[..., T], *words: Any) -> T:
        """Do something with the file system beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *words)

    async def _walk(self, act: Callable[..., T], *words: Any) -> T:
        """Do a piece of something that may have any number of them, beside all else."""
        return await asyncio.get_running_loop().run_in_executor(self._walkers, act, *words)

    @cached_property
    def _streams(
        self,
    ) -> dict[tuple[str, str], Callable[[web.Request, Path], Awaitable[web.StreamResponse]]]:
        return {
            ("GET", "OPEN"): self._open,
            ("GET", "LISTSTATUS"): self._list,
            ("GET", "GETCONTENTSUMMARY"): self._summary,
            ("DELETE", "DELETE"): self._delete,
            ("PUT", "CREATE"): self._create,
            ("POST", "APPEND"): self._append,
        }

    @cached_property
    def _calls(self) -> dict[tuple[str, str], Callable[[web.Request, Path], web.Response]]:
        return {
            ("GET", "GETFILESTATUS"): self._status,
            ("GET", "GETHOMEDIRECTORY"): self._home,
            ("GET", "GETFILEBLOCKLOCATIONS"): self._locations,
            ("GET", "GETDELEGATIONTOKEN"): self._no_token,
            ("GET", "CHECKACCESS"): self._nothing,
            ("PUT", "MKDIRS"): self._make_folders,
            ("PUT", "RENAME"): self._rename,
            ("PUT", "SETPERMISSION"): self._permission,
            ("PUT", "SETREPLICATION"): self._true,
            ("PUT", "SETTIMES"): self._times,
            ("PUT", "SETOWNER"): self._nothing,
        }

    # -- reading -----------------------------------------------------------------------------------

    def _status_of(self, path: Path, name: str, owner: str) -> dict[str, Any]:
        found = path.stat()
        folder = path.is_dir()
        return {
            "pathSuffix": name,
            "type": "DIRECTORY" if folder else "FILE",
            "length": 0 if folder else found.st_size,
            "owner": owner,
            "group": "weft",
            "permission": f"{found.st_mode & 0o1777:o}",
            "accessTime": int(found.st_atime * 1000),
            "modificationTime": int(found.st_mtime * 1000),
            "blockSize": 0 if folder else BLOCK,
            "replication": 0 if folder else 1,
            "childrenNum": 0,
            "fileId": found.st_ino,
            "storagePolicy": 0,
        }

    def _status(self, request: web.Request, path: Path) -> web.Response:
        return web.json_response({"FileStatus": self._status_of(path, "", _user(request))})

    async def _list(self, request: web.Request, path: Path) -> web.StreamResponse:
        """Answer what is in a folder, of a large one piece by piece, each in the order of names."""
        pieces = self._statuses(path, _user(request))
        piece = await self._walk(next, pieces, "")
        more = await self._walk(next, pieces, None)
        begin, end = '{"FileStatuses": {"FileStatus": [', "]}}"
        if more is None:
            return web.Response(text=begin + piece + end, content_type="application/json")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        await answer.write((begin + piece).encode())
        while more is not None:
            await answer.write(f", {more}".encode())
            more = await self._walk(next, pieces, None)
        await answer.write_eof(end.encode())
        return answer

    def _statuses(self, path: Path, owner: str) -> Iterator[str]:
        """Yield what is in a folder, or the file that it is, in pieces that have something each."""
        if not path.is_dir():
            yield json.dumps(self._status_of(path, "", owner))
            return
        with os.scandir(path) as entries:
            while names := sorted(entry.name for entry in islice(entries, NAMES_A_PIECE)):
                items = []
                for name in names:
                    # An entry may be gone meanwhile, or be a link to nothing.
                    with contextlib.suppress(OSError):
                        items.append(json.dumps(self._status_of(path / name, name, owner)))
                if items:
                    yield ", ".join(items)

    async def _summary(self, request: web.Request, path: Path) -> web.Response:
        """Answer how much there is in a folder with all below; for few at a time."""
        async with self._summaries:
            counting = _counted(path)
            found: Counter[str] | None = Counter()
            while found is not None:
                counts, found = found, await self._walk(next, counting, None)
        length = counts["length"]
        body = {
            "directoryCount": counts["folders"],
            "fileCount": counts["files"],
            "length": length,
            "quota": -1,
            "spaceConsumed": length,
            "spaceQuota": -1,
        }
        return web.json_response({"ContentSummary": body})

    def _locations(self, request: web.Request, path: Path) -> web.Response:
        """Answer where a file lies: in one piece, and near nobody in particular."""
        _must_be_file(path)
        piece = {
            "offset": 0,
            "length": path.stat().st_size,
            "hosts": [],
            "names": [],
            "cachedHosts": [],
            "topologyPaths": [],
            "corrupt": False,
        }
        return web.json_response({"BlockLocations": {"BlockLocation": [piece]}})

    def _home(self, request: web.Request, path: Path) -> web.Response:
        return web.json_response({"Path": f"/user/{_user(request)}"})

    def _no_token(self, request: web.Request, path: Path) -> web.Response:
        return web.json_response({"Token": None})

    async def _open(self, request: web.Request, path: Path) -> web.StreamResponse:
        if request.query.get("noredirect", "").lower() == "true":
            return web.json_response({"Location": str(request.url)})
        file, size = await self._apart(_readable, path)
        try:
            offset = int(request.query.get("offset", "0"))
            left = min(int(request.query.get("length", str(size))), max(0, size - offset))
            if offset < 0 or left < 0:
                raise ValueError("offset and length cannot be negative")
            answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            answer.content_length = left
            await answer.prepare(request)
            while left > 0:
                data = await self._apart(os.pread, file, min(CHUNK, left), offset)
                if not data:
                    break
                offset, left = offset + len(data), left - len(data)
                await answer.write(data)
        finally:
            os.close(file)
        await answer.write_eof()
        return answer

    # -- writing -----------------------------------------------------------------------------------

    async def _create(self, request: web.Request, path: Path) -> web.Response:
        keep = request.query.get("overwrite", "true") == "false"
        mode = _mode(request) if "permission" in request.query else -1
        # The client sends the bytes in a second request, and may change the file's mode before.
        if request.query.get("data") != "true":
            await self._apart(_announced, path, keep, mode)
            url = request.url.update_query(data="true", overwrite="true")
            where = str(url.without_query_params("permission"))
            if request.query.get("noredirect", "").lower() == "true":
                return web.json_response({"Location": where})
            return web.Response(status=307, headers={"Location": where})
        fresh = path.with_name(f".{os.urandom(8).hex()}.part")
        await self._apart(_announced, path, keep, mode)
        file = await self._apart(_begun, fresh)
        try:
            await self._take_in(request, file)
            await self._apart(_finished, path, fresh)
        finally:
            await self._apart(partial(fresh.unlink, missing_ok=True))
        return web.Response(status=201, headers={"Location": str(request.url.path)})

    async def _append(self, request: web.Request, path: Path) -> web.Response:
        if request.query.get("data") != "true":
            await self._apart(_must_be_file, path)
            where = str(request.url.update_query(data="true"))
            return web.Response(status=307, headers={"Location": where})
        await self._take_in(request, await self._apart(_appendable, path))
        return web.Response()

    async def _take_in(self, request: web.Request, file: int) -> None:
        """Write a request's body to an open file, and close that."""
        try:
            async for data in self._uploads.pieces(request, CHUNK):
                await self._apart(_write, file, data)
        finally:
            os.close(file)

    def _make_folders(self, request: web.Request, path: Path) -> web.Response:
        path.mkdir(parents=True, exist_ok=True)
        if "permission" in request.query:
            path.chmod(_mode(request) | 0o700)
        return web.json_response({"boolean": True})

    def _rename(self, request: web.Request, path: Path) -> web.Response:
        """Rename as HDFS does: nothing is replaced, unless the caller says so by options.

        With options errors are told as such: such a caller reads no result (`FileContext.rename`).
        """
        name = request.query.get("destination", "")
        if not name.startswith("/"):
            raise ValueError(f"the destination {name!r} is not an absolute path")
        to, options = self.place(name), request.query.get("renameoptions", "").upper()
        if options:
            _check_rename(path, to, overwrite="OVERWRITE" in options.split(","))
            path.replace(to)
            return web.Response()
        if to.is_dir():
            to = to / path.name
        gone = not path.exists() or not to.parent.is_dir()
        if gone or os.path.lexists(to) or _is_within(to, path):
            return web.json_response({"boolean": False})
        path.rename(to)
        return web.json_response({"boolean": True})

    def _permission(self, request: web.Request, path: Path) -> web.Response:
        path.chmod(_mode(request) | (0o700 if path.is_dir() else 0o600))
        return web.Response()

    def _times(self, request: web.Request, path: Path) -> web.Response:
        found = path.stat()
        changed_ms = int(request.query.get("modificationtime", "-1"))
        read_ms = int(request.query.get("accesstime", "-1"))
        times = (
            read_ms / 1000 if read_ms >= 0 else found.st_atime,
            changed_ms / 1000 if changed_ms >= 0 else found.st_mtime,
        )
        os.utime(path, times)
        return web.Response()

    async def _delete(self, request: web.Request, path: Path) -> web.Response:
        if path == self.root:
            raise PermissionError("the root stays")
        recursive = request.query.get("recursive", "false") == "true"
        loop = asyncio.get_running_loop()
        gone = await loop.run_in_executor(self._removers, _delete, path, recursive)
        return web.json_response({"boolean": gone})

    def _true(self, request: web.Request, path: Path) -> web.Response:
        return web.json_response({"boolean": path.exists()})

    def _nothing(self, request: web.Request, path: Path) -> web.Response:
        path.stat()
        return web.Response()


def _must_be_file(path: Path) -> None:
    if path.is_dir():
        raise FileNotFoundError(21, "is a folder")
    if not path.exists():
        raise FileNotFoundError(2, "no such file")
    # To open a pipe is to wait for its writer.
    if not path.is_file():
        raise PermissionError("is no regular file")


def _readable(path: Path) -> tuple[int, int]:
    """Return an open file and its size."""
    _must_be_file(path)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return file, os.fstat(file).st_size


def _appendable(path: Path) -> int:
    _must_be_file(path)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)


def _announced(path: Path, keep: bool, mode: int) -> None:
    """Have a file that will be written be there, as HDFS has it: empty where it was not."""
    if path.is_dir() or (path.exists() and keep):
        raise FileExistsError(17, "it is there already")
    if path.exists():
        _must_be_file(path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.close(_begun(path))
        except FileExistsError:
            if keep:
                raise
    if mode >= 0:
        path.chmod(mode)


def _begun(path: Path) -> int:
    """Return a new file, open."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _finished(path: Path, fresh: Path) -> None:
    """Put what was written in its place; the mode stays what it was made there meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        fresh.chmod(stat.S_IMODE(path.stat().st_mode))
    fresh.replace(path)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _counted(path: Path) -> Iterator[Counter[str]]:
    """Yield how many folders, files and bytes were found, now and then and at the end."""
    counts: Counter[str] = Counter()
    waiting, seen = [str(path)], 0
    if not path.is_dir():
        waiting, counts["files"], counts["length"] = [], 1, path.stat().st_size
    while waiting:
        counts["folders"] += 1
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file():
                    counts["files"] += 1
                    counts["length"] += entry.stat().st_size
                if seen % NAMES_A_PIECE == 0:
                    yield counts
        if len(waiting) > FOLDERS_WAITING_MAX:
            raise ValueError(f"more than {FOLDERS_WAITING_MAX} folders are beside each other")
    yield counts


def _is_empty(path: Path) -> bool:
    with os.scandir(path) as entries:
        return next(entries, None) is None


def _delete(path: Path, recursive: bool) -> bool:
    """Remove a file, or a folder with all that is in it; returns whether it was there."""
    if not path.exists():
        return False
    if not path.is_dir() or path.is_symlink():
        path.unlink()
    elif recursive or _is_empty(path):
        _remove_all(path)
    else:
        raise PermissionError("the folder is not empty")
    return True


def _remove_all(path: Path) -> None:
    """Remove a folder with all that is in it, however deep; raises OSError."""
    left = Left()
    place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove(place, path.name, left)
    finally:
        os.close(place)
    if left.count:
        raise PermissionError(1, f"{left.count} names cannot be removed, the first {left.first}")


def _is_within(path: Path, folder: Path) -> bool:
    """Return whether a path is a folder or below it, seen through links, too."""
    real, above = path.resolve(), folder.resolve()
    return folder in (path, *path.parents) or above in (real, *real.parents)


def _check_rename(path: Path, to: Path, *, overwrite: bool) -> None:
    """Raise OSError for what HDFS refuses of a rename with options."""
    if not path.exists():
        raise FileNotFoundError(2, "no such file")
    if not to.parent.is_dir():
        raise FileNotFoundError(2, "the destination's folder is not there")
    if path.resolve() == to.resolve():
        raise FileExistsError(17, "it is its own destination")
    if _is_within(to, path):
        raise OSError(22, "a folder cannot go into itself")
    if not os.path.lexists(to):
        return
    if not overwrite:
        raise FileExistsError(17, "the destination is there already")
    if path.is_dir() != to.is_dir():
        raise OSError(22, "one is a folder, the other is not")
    if to.is_dir() and not _is_empty(to):
        raise OSError(39, "the destination is not empty")


async def _without_type(request: web.Request, response: web.StreamResponse) -> None:
    """Leave out the type of JSON for Java: Hadoop 3.5.0 parses it by a class that its jar lacks."""
    java = request.headers.get("User-Agent", "").startswith("Java/")
    if java and response.content_type == "application/json":
        del response.headers["Content-Type"]


def _user(request: web.Request) -> str:
    """Return who a caller says to be.

    Files have no owners here, as nobody is asked who they are; MapReduce wants its user to own the
    folder of its jobs, so all is said to be its caller's.
    """
    return request.query.get("user.name", "") or "weft"


def _mode(request: web.Request) -> int:
    return int(request.query.get("permission", "755"), 8) & 0o777
