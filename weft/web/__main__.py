"""The web process: `python -m weft.web [--manager HOST:PORT] [--port 8088] [--flag value ...]`."""

import gc

# A process that starts makes no garbage, so collection is off before anything is imported and until
# the process is ready (`weft.runtime.process.quiet_collector`).
if __name__ == "__main__":
    gc.disable()

import sys

from weft.model.errors import WeftError
from weft.runtime.process import found, run
from weft.runtime.role_settings import WebSettings
from weft.runtime.settings import fail, load
from weft.web.server import serve


def main(arguments: list[str]) -> None:
    """Read the settings and serve."""
    try:
        settings = load(WebSettings, arguments, "weft.web")
        settings.manager = found(settings.manager)
    except WeftError as error:
        fail(error)
    run(lambda: serve(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
