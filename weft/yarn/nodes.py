"""The face to foreign masters of one node: start, stop and ask for containers.

A container may be started by whoever has its node's token and the container's own, both made by
this cluster: so only what the Resource Manager granted is started, and with no more than that.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from weft.model.ids import AttemptId, ContainerId, NodeId, app_of_container, attempt_of_container
from weft.protocol.messages import ItemAnswer, StopContainers, TaskLaunch
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import launches, translate
from weft.yarn.errors import HadoopError, no_service, not_allowed, yarn
from weft.yarn.rpc import Caller, Method
from weft.yarn.tokens import CONTAINER, NODE, TokenKeeper

Start = Callable[[NodeId, AttemptId, TaskLaunch], Awaitable[str]]
Stop = Callable[[StopContainers], None]
# Returns a container's status; None: it is unknown.
StatusOf = Callable[[ContainerId], Awaitable[Any]]
DURATION_S = 600.0


class NodeFace:
    """ContainerManagementProtocol of one node."""

    def __init__(
        self,
        node: NodeId,
        keeper: TokenKeeper,
        store: Any,
        start: Start,
        stop: Stop,
        look: StatusOf,
        names: Callable[[], tuple[str, ...]],
        ticket_environment: Callable[[str], Any],
        cluster_ts: Callable[[], int],
        services: Mapping[str, bytes],
    ) -> None:
        """`services` are the auxiliary ones of the node, and what masters are told of each."""
        self.node = node
        self._services = services
        self._keeper, self._store = keeper, store
        self._start, self._stop, self._look = start, stop, look
        self._names, self._environment, self._cluster_ts = names, ticket_environment, cluster_ts

    def protocol(self) -> dict[str, Method]:
        """Return the methods of ContainerManagementProtocol that are served."""
        return {
            "startContainers": Method(pb.StartContainers, self._start_containers),
            "stopContainers": Method(pb.ContainerIds, self._stop_containers),
            "getContainerStatuses": Method(pb.ContainerIds, self._statuses),
        }

    async def _start_containers(self, caller: Caller, request: Any) -> Any:
        attempt, user = self._who(caller)
        answer = pb.Started(
            services=[pb.Blob(key=name, value=data) for name, data in self._services.items()]
        )
        for item in request.items:
            identifier = self._granted(item.token)
            number = translate.read_container(identifier.container)
            try:
                if attempt_of_container(number) != attempt:
                    raise yarn("the container belongs to another application")
                await self._start_one(identifier, number, item.context, user)
                answer.succeeded.append(identifier.container)
            except HadoopError as error:
                failed = answer.failed.add(container=identifier.container)
                failed.error.message = error.text
                failed.error.class_name = error.java_class
        return answer

    async def _start_one(
        self, identifier: Any, number: ContainerId, context: Any, user: str
    ) -> None:
        if identifier.expiry_time < int(time.time() * 1000):
            raise yarn("the container's token expired")
        for one in context.service_data:
            if one.key not in self._services:
                raise no_service(one.key)
        name = translate.container_name(self._cluster_ts(), number)
        self._store.keep_launch(app_of_container(number), name, launches.data_of(context, user))
        amounts = translate.demand(identifier.resource, self._names())
        demand = tuple(amounts.get(one, 0.0) for one in self._names())
        launch = TaskLaunch(
            container_id=number,
            stage=-1,
            task=-1,
            attempt=0,
            duration_s=DURATION_S,
            demand=demand,
            command=launches.COMMAND,
            environment=self._environment(name),
            granted=demand,
        )
        error = await self._start(self.node, attempt_of_container(number), launch)
        if error:
            raise yarn(error)

    async def _stop_containers(self, caller: Caller, request: Any) -> Any:
        attempt, _ = self._who(caller)
        answer = pb.Stopped()
        numbers = [translate.read_container(one) for one in request.containers]
        own = [n for n in numbers if attempt_of_container(n) == attempt]
        if own:
            self._stop(StopContainers(attempt, self.node, tuple(own)))
        for number, one in zip(numbers, request.containers, strict=True):
            if number in own:
                answer.succeeded.append(one)
            else:
                self._unknown(answer.failed.add(container=one), number)
        return answer

    async def _statuses(self, caller: Caller, request: Any) -> Any:
        attempt, _ = self._who(caller)
        answer = pb.ContainerStatuses()
        for one in request.containers:
            number = translate.read_container(one)
            found = None
            if attempt_of_container(number) == attempt:
                found = await self._look(number)
            if found is None:
                self._unknown(answer.failed.add(container=one), number)
            else:
                answer.statuses.append(found)
        return answer

    def _unknown(self, failed: Any, number: ContainerId) -> None:
        name = translate.container_name(self._cluster_ts(), number)
        failed.error.message = f"Container {name} is not handled by this NodeManager"
        failed.error.class_name = "org.apache.hadoop.yarn.exceptions.YarnException"

    def _who(self, caller: Caller) -> tuple[AttemptId, str]:
        """Return the attempt that the caller's node token speaks for, and its user."""
        identifier = pb.NodeTokenIdentifier()
        if caller.kind == NODE:
            identifier.ParseFromString(caller.identifier)
        if caller.kind != NODE:
            raise not_allowed("a node's token is needed")
        return translate.read_attempt(identifier.attempt), identifier.submitter

    def _granted(self, token: Any) -> Any:
        identifier = pb.ContainerTokenIdentifier()
        try:
            identifier.ParseFromString(token.identifier)
        except DecodeError:
            raise yarn("the container's token cannot be read") from None
        if not self._keeper.holds(CONTAINER, token.identifier, token.password):
            raise HadoopError(
                "org.apache.hadoop.security.token.SecretManager$InvalidToken",
                "the container's token is not one of this cluster",
            )
        return identifier


def error_of(items: tuple[ItemAnswer, ...], number: ContainerId) -> str:
    """Return what a node said against starting a container; empty: nothing."""
    return next((item.error for item in items if item.container_id == number), "")
