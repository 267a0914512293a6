"""An Application Master's process: one attempt, or with `--hosting` a host of hundreds."""

import gc

# Imports leave nothing to collect; `weft.runtime.process.quiet_collector` says what follows.
if __name__ == "__main__":
    gc.disable()

import sys
from pathlib import Path

from am.process.service import HostService, MasterService
from weft.model.errors import InputError, WeftError
from weft.model.ids import AttemptId
from weft.protocol.messages import Outcome
from weft.runtime.process import Process, found, run
from weft.runtime.role_settings import AmSettings
from weft.runtime.settings import fail, load
from weft.wire.server import Server
from weft.wire.tokens import Shown


async def host(settings: AmSettings) -> None:
    """Run the masters that node managers send, until asked to end."""
    process = Process(settings)
    server = Server(settings.host, settings.port, process.exposition.called)
    service = HostService(process, settings, server)
    service.masters.warm()
    address = await server.start()
    process.serve_metrics()
    service.masters.start()
    process.ready(address=address)
    try:
        await process.until_end()
    finally:
        await server.stop()
        await service.masters.close()
        await process.close()


async def single(settings: AmSettings) -> None:
    """Run one attempt to its end; a failed one is exit code 1."""
    process = Process(settings)

    def ended(attempt: AttemptId, outcome: Outcome, exit_code: int, message: str) -> None:
        process.end(None if exit_code == 0 else WeftError(message))

    service = MasterService(process, settings, ended)
    if settings.token_file is not None:
        service.wallet.take(Shown((_token(settings.token_file),)))
    process.serve_metrics()
    service.start()
    service.add(settings.attempt)
    process.ready(attempt=settings.attempt)
    try:
        await process.until_end()
    finally:
        await service.close()
        await process.close()


def _token(file: Path) -> bytes:
    """Return the attempt's token and delete its file, a secret. Raises InputError."""
    try:
        token = file.read_bytes()
        file.unlink()
    except OSError as error:
        raise InputError("--token-file", f"{file}: {error.strerror}") from None
    return token


def main(arguments: list[str]) -> None:
    """Read the settings and run."""
    try:
        settings = load(AmSettings, arguments, "am")
        if bool(settings.attempt) == settings.hosting:
            raise InputError("am", "say either --attempt ID or --hosting")
        settings.manager = found(settings.manager)
    except WeftError as error:
        fail(error)
    run(lambda: host(settings) if settings.hosting else single(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
