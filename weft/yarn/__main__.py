"""YARN's own wire: `python -m weft.yarn [--manager HOST:PORT] [--flag value ...]`."""

import gc

# A process that starts makes no garbage, so collection is off before anything is imported and until
# the process is ready (`weft.runtime.process.quiet_collector`).
if __name__ == "__main__":
    gc.disable()

import sys

from weft.model.errors import WeftError
from weft.runtime.http_door import Door
from weft.runtime.http_server import serve
from weft.runtime.process import Process, found, run
from weft.runtime.role_settings import HadoopSettings
from weft.runtime.settings import fail, load
from weft.yarn.gateway import Gateway
from weft.yarn.web import Folder, launch_application


async def gateway(settings: HadoopSettings) -> None:
    """Serve YARN's clients and masters until told to end."""
    process = Process(settings)
    made = Gateway(process, settings)
    door = Door([settings.host, *settings.allowed_hosts])
    runner, port = await serve(launch_application(made, door), settings.host, settings.port)
    made.address = f"http://{settings.host}:{port}"
    files = None
    where = {}
    if settings.files is not None:
        files, file_port = await serve(
            Folder(settings.files).application(door), settings.host, settings.files_port
        )
        where["files"] = f"webhdfs://{settings.host}:{file_port}/"
    process.serve_metrics()
    process.ready(address=made.address, **where, **await made.start())
    try:
        await process.until_end()
    finally:
        await made.close()
        await runner.cleanup()
        if files is not None:
            await files.cleanup()
        await process.close()


def main(arguments: list[str]) -> None:
    """Read the settings and run."""
    try:
        settings = load(HadoopSettings, arguments, "weft.yarn")
        settings.manager = found(settings.manager)
    except WeftError as error:
        fail(error)
    run(lambda: gateway(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
