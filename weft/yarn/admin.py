"""The face to `yarn rmadmin`: queues are read again from the files that the cluster began with."""

import asyncio
from collections.abc import Mapping
from typing import Any

from weft.client.api import AsyncClient
from weft.workloads.cluster_file import load_queues
from weft.yarn import hadoop_pb2 as pb
from weft.yarn.clients import refuse, told
from weft.yarn.errors import yarn
from weft.yarn.rpc import Caller, Method

ADMIN = "org.apache.hadoop.yarn.server.api.ResourceManagerAdministrationProtocolPB"
UNSUPPORTED = (
    "refreshNodes",
    "refreshSuperUserGroupsConfiguration",
    "refreshUserToGroupsMappings",
    "refreshAdminAcls",
    "refreshServiceAcls",
    "updateNodeResource",
    "refreshNodesResources",
    "addToClusterNodeLabels",
    "removeFromClusterNodeLabels",
    "replaceLabelsOnNodes",
    "checkForDecommissioningNodes",
    "refreshClusterMaxPriority",
    "mapAttributesToNodes",
)


class AdminFace:
    """Answers an operator's commands; `queues` is a cluster file, or YARN's files or folder."""

    def __init__(self, client: AsyncClient, queues: str) -> None:
        self._client = client
        self._queues = queues

    def protocol(self) -> Mapping[str, Method]:
        """Return every method of the protocol: served, or refused by name."""
        methods = {name: Method(pb.Empty, refuse(name)) for name in UNSUPPORTED}
        return methods | {"refreshQueues": Method(pb.Empty, told(self._refresh_queues))}

    async def _refresh_queues(self, caller: Caller, request: Any) -> Any:
        if not self._queues:
            raise yarn("no file of queues is known: start the gateway with --queues FILE")
        total = (await self._client.metrics()).capacity
        wanted, _ = await asyncio.to_thread(load_queues, self._queues, total)
        await self._client.set_queues(wanted)
        return pb.Empty()
