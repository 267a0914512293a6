"""Auxiliary services of a host's nodes: `python -m weft.yarn.services --work-dir FOLDER`.

YARN's node manager runs such services in its own process. Here they have one beside the node
managers of a host, so that bytes on their way to others hold up no node. What a master says to a
service (`serviceData` of its containers) is left by the launcher of each container in its
application's folder, which the node removes when the application is over; so a service that
starts anew knows what it knew, and is told of nothing that is gone.
"""

import gc

if __name__ == "__main__":
    gc.disable()

import asyncio
import contextlib
import json
import os
import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from aiohttp import web

from weft.model.errors import WeftError
from weft.runtime.http_door import Door
from weft.runtime.http_server import application, serve
from weft.runtime.process import Process, run
from weft.runtime.role_settings import ServicesSettings
from weft.runtime.settings import fail, load
from weft.yarn.launcher import SERVICES_FOLDER
from weft.yarn.shuffle import Shuffle
from weft.yarn.wary import open_file, open_folder

# What a master tells a service of its application: a token, or a few words.
TOLD_BYTES_MAX = 1 << 16
SWEEP_S = 5.0
CONNECTIONS_MAX = 400


class Told(NamedTuple):
    """What a service was told of an application on one node."""

    # The application's folder on the node.
    folder: Path
    user: str
    data: bytes


class Service(Protocol):
    """An auxiliary service, as YARN's `AuxiliaryService`.

    It is told of an application on a node when it first looks for it, by `Folders.find`, and again
    when that node is done with it. There is nothing like YARN's initializeContainer.
    """

    name: str

    def initialize_application(self, told: Told) -> None:
        """Take what the application's master said; raises ValueError where it makes no sense."""

    def stop_application(self, folder: Path) -> None:
        """Forget an application that is over."""


class Folders:
    """The applications in the folders of a host's nodes, as one service is told of them."""

    def __init__(self, work: Path, service: Service) -> None:
        self._work, self._service = work, service
        # By an application's folder when what was told of it was written, ns.
        self._known: dict[Path, int] = {}

    def find(self, name: str) -> list[Path]:
        """Return the folders of an application that the service was told of, one a node.

        It blocks, and so belongs on a thread; the name must be one that makes no path.
        """
        return [folder for folder in self._of(name) if self._tell(folder)]

    def sweep(self) -> None:
        """Tell the service of what is over."""
        for folder in list(self._known):
            if not (folder / SERVICES_FOLDER / self._service.name).exists():
                self._known.pop(folder, None)
                self._service.stop_application(folder)

    def _of(self, name: str) -> Iterator[Path]:
        with contextlib.suppress(OSError), os.scandir(self._work) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path) / name

    def _tell(self, folder: Path) -> bool:
        """Tell the service of an application, where that is new; return whether it is there."""
        try:
            place = open_folder(folder, (SERVICES_FOLDER,))
            try:
                file, found = open_file(place, self._service.name)
            finally:
                os.close(place)
        except OSError:
            return False
        try:
            if self._known.get(folder) == found.st_mtime_ns:
                return True
            text = os.pread(file, TOLD_BYTES_MAX, 0)
        finally:
            os.close(file)
        try:
            said = json.loads(text)
            told = Told(folder, str(said["user"]), b64decode(said["data"]))
            self._service.initialize_application(told)
        except (ValueError, KeyError, TypeError):
            return False
        self._known[folder] = found.st_mtime_ns
        return True


def services_application(
    door: Door, shuffle: Shuffle, folders: Folders, pages: str = ""
) -> web.Application:
    """Return a host's server: the shuffle, and the way to its nodes' pages at `pages`."""
    app = application(door)
    shuffle.add_to(app, folders.find)

    async def elsewhere(request: web.Request) -> web.Response:
        if not pages:
            return web.Response(status=404, text="there are no pages")
        return web.Response(status=307, headers={"Location": pages + request.raw_path})

    app.router.add_get("/node{path:(/.*)?}", elsewhere)
    return app


async def services(settings: ServicesSettings) -> None:
    """Serve until told to end."""
    process = Process(settings)
    shuffle = Shuffle()
    folders = Folders(settings.work_dir.resolve(), shuffle)
    door = Door([settings.host, *settings.allowed_hosts])
    app = services_application(door, shuffle, folders, settings.web)
    runner, port = await serve(app, settings.host, settings.port, CONNECTIONS_MAX)
    shuffle.port = port

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await asyncio.get_running_loop().run_in_executor(shuffle.threads, folders.sweep)

    process.spawn(sweep())
    process.serve_metrics()
    process.ready(address=f"{settings.host}:{port}")
    try:
        await process.until_end()
    finally:
        await runner.cleanup()
        await process.close()


def main(arguments: Sequence[str]) -> None:
    """Read the settings and run."""
    try:
        settings = load(ServicesSettings, list(arguments), "weft.yarn.services")
    except WeftError as error:
        fail(error)
    run(lambda: services(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
