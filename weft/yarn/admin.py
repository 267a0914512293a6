"""The face to `yarn rmadmin`: queues are read anew from their files, and nodes have other sizes."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from weft.client.api import AsyncClient
from weft.model.ids import NodeId
from weft.workloads.cluster_file import load_queues
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import translate
from weft.yarn.clients import refuse, told
from weft.yarn.errors import not_allowed, yarn
from weft.yarn.rpc import Caller, Handler, Method

ADMIN = "org.apache.hadoop.yarn.server.api.ResourceManagerAdministrationProtocolPB"
UNSUPPORTED = (
    "refreshNodes",
    "refreshSuperUserGroupsConfiguration",
    "refreshUserToGroupsMappings",
    "refreshAdminAcls",
    "refreshServiceAcls",
    "refreshNodesResources",
    "addToClusterNodeLabels",
    "removeFromClusterNodeLabels",
    "replaceLabelsOnNodes",
    "checkForDecommissioningNodes",
    "refreshClusterMaxPriority",
    "mapAttributesToNodes",
)


class AdminFace:
    """Answers an operator's commands; `queues` is a cluster file, or YARN's files or folder.

    `administrators` names who may give them, "*" is everybody. As in YARN, callers' names are not
    proven.
    """

    def __init__(
        self,
        client: AsyncClient,
        queues: str,
        administrators: str,
        address_of: Callable[[NodeId], Any],
        names: Callable[[], tuple[str, ...]],
    ) -> None:
        self._client = client
        self._queues = queues
        self._administrators = {name.strip() for name in administrators.split(",")}
        self._address_of = address_of
        self._names = names

    def protocol(self) -> Mapping[str, Method]:
        """Return every method of the protocol: served, or refused by name."""
        methods = {name: Method(pb.Empty, refuse(name)) for name in UNSUPPORTED}
        served = {
            "refreshQueues": (pb.Empty, self._refresh_queues),
            "updateNodeResource": (pb.UpdateNodeResource, self._update_nodes),
        }
        return methods | {
            name: Method(kind, told(self._allowed(name, call)))
            for name, (kind, call) in served.items()
        }

    def _allowed(self, name: str, call: Handler) -> Handler:
        """Refuse a call by who is no administrator, in YARN's words."""

        async def handler(caller: Caller, request: Any) -> Any:
            if not self._administrators & {caller.user, "*"}:
                user = translate.shown(caller.user) or "anonymous"
                raise not_allowed(f"User {user} doesn't have permission to call '{name}'")
            return await call(caller, request)

        return handler

    async def _refresh_queues(self, caller: Caller, request: Any) -> Any:
        if not self._queues:
            raise yarn("no file of queues is known: start the gateway with --queues FILE")
        total = (await self._client.metrics()).capacity
        wanted, _ = await asyncio.to_thread(load_queues, self._queues, total)
        await self._client.set_queues(wanted)
        return pb.Empty()

    async def _update_nodes(self, caller: Caller, request: Any) -> Any:
        known = {
            (address.host, address.port): report.node_id
            for report in await self._client.nodes()
            if (address := self._address_of(report.node_id))
        }
        wanted: dict[NodeId, dict[str, float]] = {}
        for item in request.nodes:
            host, port = item.node.host, item.node.port
            if (host, port) not in known:
                # YARN looks at all nodes before it changes one.
                raise yarn(
                    "Resource update get failed on all nodes due to change resource on an "
                    f"unrecognized node: {host}:{port}"
                )
            resource = item.option.resource
            wanted[known[host, port]] = translate.demand(resource, self._names())
        for node, size in wanted.items():
            await self._client.update_node(node, size)
        return pb.Empty()
