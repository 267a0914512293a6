"""HTTP: what launchers fetch, and WebHDFS over a folder, so that no HDFS is needed.

WebHDFS without redirects to other hosts: the port that names a file also serves it. A name stays
under the folder, whatever dots and links it has.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any

from aiohttp import web

from weft.model.errors import InputError, WeftError
from weft.model.ids import attempt_id, container_id
from weft.yarn.gateway import Gateway

CHUNK = 1 << 20
BLOCK = 128 << 20
_PREFIX = "/webhdfs/v1"
_JAVA_ERROR = {
    FileNotFoundError: (404, "java.io.FileNotFoundException"),
    FileExistsError: (403, "org.apache.hadoop.fs.FileAlreadyExistsException"),
    NotADirectoryError: (403, "org.apache.hadoop.fs.ParentNotDirectoryException"),
    PermissionError: (403, "org.apache.hadoop.security.AccessControlException"),
    ValueError: (400, "java.lang.IllegalArgumentException"),
    OverflowError: (400, "java.lang.IllegalArgumentException"),
}


def launch_application(gateway: Gateway) -> web.Application:
    """Return the server that launchers ask for what they are to run."""

    async def launch(request: web.Request) -> web.Response:
        name = request.match_info["container"]
        try:
            number = read_name(name)
        except InputError as error:
            return web.Response(status=400, text=str(error))
        ticket = request.headers.get("X-Weft-Ticket", "")
        node = request.headers.get("X-Weft-Node", "")
        try:
            data = await gateway.launch(name, number, node, ticket)
        except WeftError as error:  # the launcher asks again
            return web.Response(status=503, text=str(error))
        if data is None:
            return web.Response(status=403, text="no such container, or not with this ticket")
        return web.json_response(data)

    async def faces(request: web.Request) -> web.Response:
        return web.json_response(gateway.faces())

    app = web.Application()
    app.router.add_get("/launch/{container}", launch)
    app.router.add_get("/faces", faces)
    return app


def read_name(name: str) -> int:
    """Read `container_<ts>_<app>_<attempt>_<number>`; raises InputError."""
    parts = name.split("_")
    if len(parts) != 5 or parts[0] != "container" or not all(p.isdigit() for p in parts[1:]):
        raise InputError("container", f"{name!r} is no container id")
    return container_id(attempt_id(int(parts[2]), int(parts[3])), int(parts[4]))


class Folder:
    """WebHDFS over a folder of this host."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True)

    def application(self) -> web.Application:
        """Return the server."""
        app = web.Application(client_max_size=1 << 40)
        app.router.add_route("*", _PREFIX + "/{path:.*}", self._serve)
        app.router.add_route("*", _PREFIX, self._serve)
        app.on_response_prepare.append(_without_type)
        return app

    def place(self, name: str) -> Path:
        """Return the file of a name; raises PermissionError for one outside the folder."""
        # two slashes at the beginning would be a root of their own
        parts = [part for part in PurePosixPath(name.lstrip("/")).parts if part != "."]
        if ".." in parts or any("\0" in part for part in parts):
            raise PermissionError("the name leaves the file system")
        path = self.root.joinpath(*parts)
        try:
            resolved = path.resolve()
        except RuntimeError:  # what Python before 3.13 says of links that lead to each other
            raise PermissionError("the name is a loop of links") from None
        if resolved != self.root and self.root not in resolved.parents:
            raise PermissionError("the name leaves the file system")
        return path

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        operation = request.query.get("op", "").upper()
        call = self._calls().get((request.method, operation))
        try:
            if call is None:
                raise ValueError(f"{request.method} {operation or '(no op)'} is not served")
            return await call(request, self.place(request.match_info.get("path", "")))
        except (OSError, ValueError, OverflowError) as error:
            kinds = (kind for kind in _JAVA_ERROR if isinstance(error, kind))
            status, java_class = _JAVA_ERROR.get(next(kinds, OSError), (500, "java.io.IOException"))
            body = {
                "exception": java_class.rpartition(".")[2],
                "javaClassName": java_class,
                "message": self._words(error, request),
            }
            return web.json_response({"RemoteException": body}, status=status)

    def _words(self, error: Exception, request: web.Request) -> str:
        text = getattr(error, "strerror", None) or str(error)
        return f"{request.match_info.get('path', '')}: {text}"

    def _calls(
        self,
    ) -> dict[tuple[str, str], Callable[[web.Request, Path], Awaitable[web.StreamResponse]]]:
        return {
            ("GET", "GETFILESTATUS"): self._status,
            ("GET", "LISTSTATUS"): self._list,
            ("GET", "GETHOMEDIRECTORY"): self._home,
            ("GET", "GETCONTENTSUMMARY"): self._summary,
            ("GET", "GETDELEGATIONTOKEN"): self._no_token,
            ("GET", "CHECKACCESS"): self._nothing,
            ("GET", "OPEN"): self._open,
            ("PUT", "CREATE"): self._create,
            ("PUT", "MKDIRS"): self._make_folders,
            ("PUT", "RENAME"): self._rename,
            ("PUT", "SETPERMISSION"): self._permission,
            ("PUT", "SETREPLICATION"): self._true,
            ("PUT", "SETTIMES"): self._times,
            ("PUT", "SETOWNER"): self._nothing,
            ("POST", "APPEND"): self._append,
            ("DELETE", "DELETE"): self._delete,
        }

    # -- reading -----------------------------------------------------------------------------------

    def _status_of(self, path: Path, name: str) -> dict[str, Any]:
        found = path.stat()
        folder = path.is_dir()
        return {
            "pathSuffix": name,
            "type": "DIRECTORY" if folder else "FILE",
            "length": 0 if folder else found.st_size,
            "owner": "weft",
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

    async def _status(self, request: web.Request, path: Path) -> web.Response:
        return web.json_response({"FileStatus": self._status_of(path, "")})

    async def _list(self, request: web.Request, path: Path) -> web.Response:
        if path.is_dir():
            items = []
            for one in sorted(path.iterdir()):
                with contextlib.suppress(OSError):  # gone meanwhile, or a link to nothing
                    items.append(self._status_of(one, one.name))
        else:
            items = [self._status_of(path, "")]
        return web.json_response({"FileStatuses": {"FileStatus": items}})

    async def _summary(self, request: web.Request, path: Path) -> web.Response:
        files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
        folders = sum(p.is_dir() for p in path.rglob("*")) + path.is_dir()
        length = sum(p.stat().st_size for p in files)
        body = {
            "directoryCount": folders,
            "fileCount": len(files),
            "length": length,
            "quota": -1,
            "spaceConsumed": length,
            "spaceQuota": -1,
        }
        return web.json_response({"ContentSummary": body})

    async def _home(self, request: web.Request, path: Path) -> web.Response:
        user = request.query.get("user.name", "anonymous")
        return web.json_response({"Path": f"/user/{user}"})

    async def _no_token(self, request: web.Request, path: Path) -> web.Response:
        return web.json_response({"Token": None})

    async def _open(self, request: web.Request, path: Path) -> web.StreamResponse:
        if path.is_dir():
            raise FileNotFoundError(21, "is a folder")
        if path.exists() and not path.is_file():  # to open a pipe is to wait for its writer
            raise PermissionError("is no regular file")
        if request.query.get("noredirect", "").lower() == "true":
            return web.json_response({"Location": str(request.url)})
        offset = int(request.query.get("offset", "0"))
        size = path.stat().st_size
        left = min(int(request.query.get("length", str(size))), max(0, size - offset))
        if offset < 0 or left < 0:
            raise ValueError("offset and length cannot be negative")
        answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        answer.content_length = left
        await answer.prepare(request)
        with path.open("rb") as file:
            file.seek(offset)
            while left > 0 and (data := file.read(min(CHUNK, left))):
                left -= len(data)
                await answer.write(data)
        await answer.write_eof()
        return answer

    # -- writing -----------------------------------------------------------------------------------

    async def _create(self, request: web.Request, path: Path) -> web.Response:
        if request.query.get("data") != "true":  # the client sends the bytes in a second request
            where = str(request.url.update_query(data="true"))
            if request.query.get("noredirect", "").lower() == "true":
                return web.json_response({"Location": where})
            return web.Response(status=307, headers={"Location": where})
        if path.is_dir() or (path.exists() and request.query.get("overwrite", "true") == "false"):
            raise FileExistsError(17, "it is there already")
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
        try:
            with fresh.open("wb") as file:
                async for data in request.content.iter_chunked(CHUNK):
                    await asyncio.to_thread(file.write, data)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
        if "permission" in request.query:
            path.chmod(_mode(request))
        return web.Response(status=201, headers={"Location": str(request.url.path)})

    async def _append(self, request: web.Request, path: Path) -> web.Response:
        if not path.is_file():
            raise FileNotFoundError(2, "no such file")
        if request.query.get("data") != "true":
            where = str(request.url.update_query(data="true"))
            return web.Response(status=307, headers={"Location": where})
        with path.open("ab") as file:
            async for data in request.content.iter_chunked(CHUNK):
                file.write(data)
        return web.Response()

    async def _make_folders(self, request: web.Request, path: Path) -> web.Response:
        path.mkdir(parents=True, exist_ok=True)
        if "permission" in request.query:
            path.chmod(_mode(request) | 0o700)
        return web.json_response({"boolean": True})

    async def _rename(self, request: web.Request, path: Path) -> web.Response:
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

    async def _permission(self, request: web.Request, path: Path) -> web.Response:
        path.chmod(_mode(request) | (0o700 if path.is_dir() else 0o600))
        return web.Response()

    async def _times(self, request: web.Request, path: Path) -> web.Response:
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
        if not path.exists():
            return web.json_response({"boolean": False})
        if path.is_dir() and not path.is_symlink():
            if request.query.get("recursive", "false") != "true" and any(path.iterdir()):
                raise PermissionError("the folder is not empty")
            await asyncio.to_thread(shutil.rmtree, path)
        else:
            path.unlink()
        return web.json_response({"boolean": True})

    async def _true(self, request: web.Request, path: Path) -> web.Response:
        return web.json_response({"boolean": path.exists()})

    async def _nothing(self, request: web.Request, path: Path) -> web.Response:
        path.stat()
        return web.Response()


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
    if to.is_dir() and any(to.iterdir()):
        raise OSError(39, "the destination is not empty")


async def _without_type(request: web.Request, response: web.StreamResponse) -> None:
    """Leave out the type of JSON for Java: Hadoop 3.5.0 parses it by a class that its jar lacks."""
    java = request.headers.get("User-Agent", "").startswith("Java/")
    if java and response.content_type == "application/json":
        del response.headers["Content-Type"]


def _mode(request: web.Request) -> int:
    return int(request.query.get("permission", "755"), 8) & 0o777


async def serve(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Listen; returns what closes it, and the port."""
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=30)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    server: Any = site._server
    return runner, int(server.sockets[0].getsockname()[1])
