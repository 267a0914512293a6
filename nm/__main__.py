"""A Node Manager's process: `python -m nm [--flag value ...]`, any number of emulated nodes."""

import gc

# A process that starts makes no garbage, so collection is off before anything is imported and until
# the process is ready (`weft.runtime.process.quiet_collector`).
if __name__ == "__main__":
    gc.disable()

import sys
from dataclasses import replace

from nm.process.health import check_script
from nm.process.isolation import Isolation
from nm.process.service import NodeService, isolation_of
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.errors import InputError, WeftError
from weft.runtime.process import Process, found, run
from weft.runtime.role_settings import NmSettings
from weft.runtime.settings import fail, load
from weft.wire.server import Server
from weft.workloads.cluster_file import load_cluster


def choose_nodes(settings: NmSettings, cluster: ClusterSpec) -> list[NodeSpec]:
    """Return this process's nodes: copies of a cluster's only node, or a slice of its nodes.

    Raises InputError when the cluster has fewer nodes.
    """
    first, count, name = settings.first_node, settings.nodes, settings.node_name
    if settings.mode == "process" and count > 1:
        raise InputError("--nodes", "in process mode a process is one node")
    if len(cluster.nodes) == 1:
        model = cluster.nodes[0]
        if count == 1 and (name or first == 1):
            return [replace(model, node_id=name or model.node_id)]
        return [replace(model, node_id=f"{name or 'n'}{first + i}") for i in range(count)]
    chosen = list(cluster.nodes[first - 1 : first - 1 + count])
    if len(chosen) < count:
        raise InputError(
            "--nodes", f"nodes {first} to {first + count - 1} of a cluster of {len(cluster.nodes)}"
        )
    return [replace(node, node_id=f"{name}{node.node_id}") for node in chosen]


async def serve(
    settings: NmSettings,
    specs: list[NodeSpec],
    cluster: ClusterSpec,
    kept_apart: Isolation | None,
) -> None:
    """Run these nodes until asked to end."""
    process = Process(settings)
    server = Server(settings.host, settings.port, process.exposition.called)
    service = NodeService(process, settings, server, kept_apart)
    address = await server.start()
    process.serve_metrics()
    service.start(specs, cluster.types, settings.advertise or address)
    process.ready(address=address, nodes=len(specs))
    try:
        await process.until_end()
    finally:
        await service.close()
        await server.stop()
        await process.close()


def main(arguments: list[str]) -> None:
    """Read the settings and serve."""
    try:
        settings = load(NmSettings, arguments, "nm")
        cluster = load_cluster(settings.cluster)
        specs = choose_nodes(settings, cluster)
        if settings.health_script is not None:
            check_script(settings.health_script)
        kept_apart = isolation_of(settings, specs[0].node_id)
        settings.manager = found(settings.manager)
        if settings.launch == "hosted":
            settings.am_host = found(settings.am_host)
    except WeftError as error:
        fail(error)
    run(lambda: serve(settings, specs, cluster, kept_apart))


if __name__ == "__main__":
    main(sys.argv[1:])
