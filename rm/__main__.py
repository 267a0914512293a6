"""The Resource Manager's process: `python -m rm [--flag value ...]`."""

import sys
import time
from pathlib import Path

from rm.core import ResourceManager
from rm.making import ManagerParts
from rm.match.registry import make_matcher
from rm.process.instruments import MeteredStore, instrument
from rm.process.remote import InOrder, RemoteMatcher
from rm.process.service import ManagerService
from rm.process.store import Journal
from rm.process.trust import Trust, open_keys
from rm.process.warm import warm
from rm.recovery import compact
from rm.settings import ManagerSettings
from weft.cluster import DEFAULT_QUEUES, QueueSpec
from weft.effects import Recovered
from weft.errors import WeftError
from weft.live.process import Process, run
from weft.live.settings import RmSettings, fail, load, pairs
from weft.live.shell import Shell
from weft.messages import MANAGER
from weft.presets import Preset, choose, with_options
from weft.resources import DEFAULT_RESOURCE_TYPES, ResourceTypes
from weft.wire.server import Server


def make_manager(settings: RmSettings, cluster_ts: int) -> ResourceManager:
    """Choose the policies and build the core; raises InputError for an unknown name or value."""
    return parts_of(settings, cluster_ts).make()


def parts_of(settings: RmSettings, cluster_ts: int) -> ManagerParts:
    """What the core is made with; raises InputError for an unknown name."""
    types, queues = _cluster(settings.cluster)
    chosen = _chosen(settings)
    return ManagerParts(
        cluster_ts,
        types,
        queues,
        chosen.matcher,
        chosen.matcher_options,
        ManagerSettings(
            prompt=settings.pace == "prompt",
            heartbeat_s=settings.heartbeat_s,
            master_heartbeat_s=settings.master_heartbeat_s,
            node_expiry_s=settings.node_expiry_s,
            master_expiry_s=settings.master_expiry_s,
            resend_after_s=settings.resend_after_s,
            reserve_after_s=settings.reserve_after_s,
            gang_nodes_max=settings.gang_nodes_max,
            preemption=settings.preemption,
            preemption_intra_queue=settings.preemption_intra_queue,
            preemption_grace_s=settings.preemption_grace_s,
            preemption_interval_s=settings.preemption_interval_s,
            preemption_natural=settings.preemption_natural,
            preemption_round_max=settings.preemption_round_max,
            preemption_dead_zone=settings.preemption_dead_zone,
            takeover=settings.takeover,
            takeover_wait_s=settings.takeover_wait_s,
            node_ends_max=settings.node_ends_max,
            max_attempts=settings.max_attempts,
            queue_apps_max=settings.queue_apps_max,
            user_apps_max=settings.user_apps_max,
            master_demand={
                "vcores": settings.master_vcores,
                "memory_mb": settings.master_memory_mb,
            },
            master_share_max=settings.master_share_max,
            recovery=settings.state_dir is not None,
        ),
        settings.seed,
    )


def _chosen(settings: RmSettings) -> Preset:
    chosen = choose(settings.scheduler, matcher=settings.matcher)
    return with_options(chosen, pairs(settings.set), ("matcher",))


def _cluster(text: str) -> tuple[ResourceTypes, QueueSpec]:
    if not text:
        return DEFAULT_RESOURCE_TYPES, DEFAULT_QUEUES
    from weft.workloads.cluster_file import load_cluster

    cluster = load_cluster(text)
    return cluster.types, cluster.queues


async def serve(settings: RmSettings) -> None:
    """Serve until told to end."""
    process = Process(settings)
    journal = Journal(Path(settings.state_dir), compact) if settings.state_dir else None
    now_ms = int(time.time() * 1000)
    cluster_ts = journal.cluster_ts(now_ms) if journal is not None else now_ms
    parts = parts_of(settings, cluster_ts)
    manager = parts.make()
    records = tuple(journal.read()) if journal is not None else ()
    if journal is not None and journal.dropped:
        process.log.warning("the journal ends early", dropped=journal.dropped)
    instrument(process.exposition, manager)
    keys, save_keys = open_keys(settings.state_dir, settings.token_key_s)
    server = Server(
        settings.host, settings.port, process.exposition.called,
        lambda text: keys.true_user(text, time.time()),
    )  # fmt: skip
    service = ManagerService(
        process, server, Trust(keys, manager.books), len(manager.books.types),
        settings.submissions_per_s, settings.heartbeat_s,
    )  # fmt: skip
    store = None if journal is None else MeteredStore(journal, process.exposition)
    shell = Shell(
        process.clock, service, store, process.exposition.meter, checked=settings.check,
        tape=process.record("rm"),
    )  # fmt: skip
    shell.add(MANAGER, manager, parts)
    shell.post(MANAGER, Recovered(records))
    service.attach(shell)
    # before anybody is served, or all wait while kernels are loaded or compiled
    trial = make_matcher(parts.matcher, parts.matcher_options)
    if isinstance(trial, RemoteMatcher):  # nobody else is asked about a job that is none
        trial = InOrder()
    warm(trial, manager.books.types)
    address = await server.start()
    process.serve_metrics()
    loop = process.spawn(shell.run())
    process.spawn(service.turn_keys(save_keys, min(60.0, settings.token_key_s / 4)))
    process.ready(address=address, cluster_ts=cluster_ts)
    try:
        await process.until_end()
    finally:
        await server.stop()
        shell.end()
        if not loop.done():
            await shell.settle()
        await process.close()
        if journal is not None:
            journal.close()


def main(arguments: list[str]) -> None:
    """Read the settings and serve."""
    try:
        settings = load(RmSettings, arguments, "rm")
    except WeftError as error:
        fail(error)
    run(lambda: serve(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
