"""The Resource Manager's process: `python -m rm [--flag value ...]`."""

import gc

# This comes before anything is imported: a process that starts makes no garbage until it is ready
# (`weft.runtime.process.quiet_collector`).
if __name__ == "__main__":
    gc.disable()

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import fields

from rm.core import ResourceManager
from rm.making import ManagerParts
from rm.match.registry import make_matcher
from rm.process.etcd_store import LeadershipLostError
from rm.process.ranks import Ranks, start_again
from rm.process.remote import InOrder, RemoteMatcher
from rm.process.service import SUBMISSIONS_PER_S, ManagerService
from rm.process.settings_told import settings_told
from rm.process.state import State, from_folder
from rm.process.warm import warm
from rm.settings import ManagerSettings
from weft.ha.etcd import etcd_settings
from weft.model.errors import InputError, WeftError
from weft.model.queues import DEFAULT_QUEUES, QueueSpec
from weft.model.resources import DEFAULT_RESOURCE_TYPES, ResourceTypes
from weft.policies.presets import Preset, choose, with_options
from weft.runtime.process import Process, run
from weft.runtime.role_settings import RmSettings
from weft.runtime.settings import fail, load, pairs
from weft.wire.server import Server


def make_manager(settings: RmSettings, cluster_ts: int) -> ResourceManager:
    """Choose the policies and build the core; raises InputError for an unknown name or value."""
    return parts_of(settings, cluster_ts).make()


def parts_of(settings: RmSettings, cluster_ts: int) -> ManagerParts:
    """Return what the core is made with; raises InputError for an unknown name."""
    types, queues = _cluster(settings.cluster)
    chosen = _chosen(settings)
    member, members = map(int, settings.member.split("/"))
    if member > members:
        raise InputError("member", f"{settings.member}: there is no such member")
    told = settings.model_dump()
    same = {each.name: told[each.name] for each in fields(ManagerSettings) if each.name in told}
    return ManagerParts(
        cluster_ts,
        types,
        queues,
        chosen.matcher,
        chosen.matcher_options,
        ManagerSettings(
            **{
                **same,
                "prompt": settings.pace == "prompt",
                "master_demand": {
                    "vcores": settings.master_vcores,
                    "memory_mb": settings.master_memory_mb,
                },
                "recovery": settings.state_dir is not None or bool(settings.store),
                "member": member,
                "members": members,
            }
        ),
        settings.seed,
    )


def _chosen(settings: RmSettings) -> Preset:
    chosen = choose(settings.scheduler, matcher=settings.matcher)
    from weft.workloads.carbon_trace import inlined

    return with_options(chosen, inlined(pairs(settings.set)), ("matcher",))


def _cluster(text: str) -> tuple[ResourceTypes, QueueSpec]:
    if not text:
        return DEFAULT_RESOURCE_TYPES, DEFAULT_QUEUES
    from weft.workloads.cluster_file import load_cluster

    cluster = load_cluster(text)
    return cluster.types, cluster.queues


async def serve(settings: RmSettings) -> None:
    """Serve until told to end; raises LeadershipLostError where another manager took over."""
    where = etcd_settings(settings)
    process = Process(settings)
    parts = parts_of(settings, started_ms(settings))
    # What is wrong with the settings is told before anything is waited for.
    parts.make()
    ranks = None if where is None else Ranks(process, settings, where)
    server = Server(
        settings.host,
        settings.port,
        process.exposition.called,
        lambda text: service.user_of(text),  # noqa: PLW0108 - it is made below
        None if ranks is None else ranks.gate,
    )
    d, pace = len(parts.types), settings.heartbeat_s
    report = None if ranks is None else ranks.report
    told = settings_told(settings, parts)
    service = ManagerService(process, server, d, SUBMISSIONS_PER_S, pace, report, told)
    state: State | None = None
    stepped_down = False

    def begin(found: State) -> None:
        nonlocal state
        state = found
        found.begin(process, service, settings, parts)

    if ranks is None:
        begin(from_folder(settings, parts.cluster_ts))
    # Kernels are loaded or compiled before anybody is served, or all would wait for that.
    warm_up(parts)
    address = await server.start()
    process.serve_metrics()
    if ranks is not None:
        ranks.listens(address)
    process.ready(address=address, cluster_ts=0 if state is None else state.cluster_ts)
    if ranks is not None:
        ranks.start()
        ranks.life, ranks.on_suspended = (lambda: service.life), service.suspend
        ranks.trouble = lambda: service.refusing
        process.spawn(take_over(ranks, process, settings, begin))
    try:
        await process.until_end()
    except LeadershipLostError:
        stepped_down = True
    finally:
        await ended(process, server, state, ranks)
    if stepped_down and ranks is not None and not process.told:
        raise SteppedDownError(ranks.places)


def started_ms(settings: RmSettings) -> int:
    """Return when a cluster started that no state tells of yet, ms since the epoch."""
    return settings.cluster_ts or int(time.time() * 1000)


async def ended(process: Process, server: Server, state: State | None, ranks: Ranks | None) -> None:
    """End in order; what was accepted is written before another one leads."""
    await server.stop()
    if state is not None:
        await state.end()
    if ranks is not None:
        await asyncio.to_thread(ranks.leave)
    await process.close()


class SteppedDownError(WeftError):
    """Another manager leads; `places` says where this one listened."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places
        super().__init__("another manager leads")


async def take_over(
    ranks: Ranks, process: Process, settings: RmSettings, begin: Callable[[State], None]
) -> None:
    """Wait until this manager leads, and go on with what its predecessor knew."""
    await ranks.elected()
    began_s = time.monotonic()
    taken = await asyncio.to_thread(ranks.take_over, started_ms(settings), settings.token_key_s)
    journal, cluster_ts, keys, save = taken
    records = await asyncio.to_thread(ranks.read, journal)
    begin(State(journal, records, cluster_ts, keys, save))
    ranks.serves = True
    took_s = time.monotonic() - began_s
    process.log.info("took over", records=len(records), took_s=round(took_s, 3))


def warm_up(parts: ManagerParts) -> None:
    """Load the kernels."""
    trial = make_matcher(parts.matcher, parts.matcher_options)
    if isinstance(trial, RemoteMatcher):
        # Nobody else is asked about a job that is none.
        trial = InOrder()
    warm(trial, parts.types)


def main(arguments: list[str]) -> None:
    """Read the settings and serve."""
    try:
        settings = load(RmSettings, arguments, "rm")
    except WeftError as error:
        fail(error)
    stepped_down: list[SteppedDownError] = []

    async def until_replaced() -> None:
        try:
            await serve(settings)
        except SteppedDownError as error:
            stepped_down.append(error)

    run(until_replaced)
    for why in stepped_down:
        start_again(why.places)


if __name__ == "__main__":
    main(sys.argv[1:])
