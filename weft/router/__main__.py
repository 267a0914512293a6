"""The router's process: `python -m weft.router --member HOST:PORT --member HOST:PORT ...`."""

import gc

# A process that starts makes no garbage, so collection is off before anything is imported and until
# the process is ready (`weft.runtime.process.quiet_collector`).
if __name__ == "__main__":
    gc.disable()

import asyncio
import sys

from weft.ha.etcd import etcd_settings
from weft.model.errors import InputError, WeftError
from weft.protocol.access import Role
from weft.router.routing import Router
from weft.router.sharing import Turn, keep_sharing
from weft.runtime.process import Process, found, run
from weft.runtime.role_settings import RouterSettings
from weft.runtime.settings import fail, load
from weft.wire.server import Server
from weft.wire.services import add_client_service
from weft.wire.validator import Gate


async def serve(settings: RouterSettings) -> None:
    """Serve until told to end."""
    process = Process(settings)
    server = Server(settings.host, settings.port, process.exposition.called, _no_token)
    router = Router(settings.member, settings.deadline_s)
    gate = Gate(process.tell_refused, process.count_refused)
    add_client_service(server, router.ask, router.watch, gate, router.leave)
    await router.look()
    router.address = await server.start()
    process.serve_metrics()
    process.ready(address=router.address, members=len(settings.member))
    process.spawn(router.keep_looking())
    turn = None
    if settings.shares_s and len(router.members) > 1:
        turn = Turn(etcd_settings(settings), settings.lease_s, router.address)
        process.spawn(keep_sharing(router.members, settings.shares_s, turn))
    try:
        await process.until_end()
    finally:
        if turn is not None:
            await asyncio.to_thread(turn.leave)
        await server.stop()
        await router.close()
        await process.close()


def _no_token(text: str) -> tuple[Role, str]:
    raise InputError("token", "is for one member alone: a router knows users by certificates")


def main(arguments: list[str]) -> None:
    """Read the settings and serve."""
    try:
        settings = load(RouterSettings, arguments, "weft.router")
        if not settings.member:
            raise InputError("--member", "name each member of the cluster, in order")
        settings.member = [found(place) for place in settings.member]
    except WeftError as error:
        fail(error)
    run(lambda: serve(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
