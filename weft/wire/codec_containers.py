"""Application Master <-> Node Manager: bulk calls to and from `proto/containers.proto`."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from weft.model.ids import ContainerId
from weft.protocol.messages import (
    ItemAnswer,
    MasterLaunch,
    NodeToMaster,
    Outcome,
    QueryContainers,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
    TasksEnded,
    started_by,
)
from weft.wire import containers_pb2 as pb
from weft.wire import host_pb2 as host
from weft.wire import words_pb2 as words
from weft.wire.codec_common import (
    CodecError,
    decode_master_launch,
    decode_task_ends,
    decode_uses,
    encode_master_launch,
    encode_task_ends,
    encode_uses,
    outcome_of,
)

TokensOf = Callable[[Iterable[ContainerId]], Iterable[bytes]]


def no_tokens(containers: Iterable[ContainerId]) -> Iterable[bytes]:
    """Return nothing: no token was given."""
    return ()


_T = TypeVar("_T")
_V = TypeVar("_V", bound=Hashable)


class _Table(dict[_V, int]):
    """Values that repeat in a batch, by position; stages' tasks share demands and commands."""

    def __missing__(self, value: _V) -> int:
        position = self[value] = len(self)
        return position


def encode_starts(
    follower: str, messages: Iterable[StartContainers], tokens: TokensOf = no_tokens
) -> pb.StartContainersRequest:
    """Return a bulk start; `follower` names the caller's stream of ended tasks."""
    demands: _Table[tuple[float, ...]] = _Table()
    commands: _Table[tuple[str, ...]] = _Table()
    environments: _Table[tuple[tuple[str, str], ...]] = _Table()
    request = pb.StartContainersRequest(follower=follower)
    make = pb.TaskLaunch
    for message in messages:
        request.starts.add(
            attempt_id=message.attempt_id,
            node_id=message.node_id,
            items=[
                make(
                    container_id=item.container_id,
                    stage=item.stage,
                    task=item.task,
                    attempt=item.attempt,
                    duration_s=item.duration_s,
                    demand=demands[item.demand],
                    command=commands[item.command],
                    environment=environments[item.environment],
                    reusable=item.reusable,
                    remote=item.remote,
                    granted=demands[item.granted],
                    tasks=item.tasks,
                )
                for item in message.items
            ],
            boot=message.boot,
        )
        request.tokens.extend(tokens([n for item in message.items for n in started_by(item)]))
    request.demands.extend([words.Vector(amount=demand) for demand in demands])
    request.commands.extend([pb.Words(words=command) for command in commands])
    for variables in environments:
        to = request.environments.add()
        for name, value in variables:
            to.variables.add(name=name, value=value)
    return request


def decode_starts(request: pb.StartContainersRequest) -> list[StartContainers]:
    """Return a bulk start; raises CodecError where a position is outside its table."""
    demands = [tuple(vector.amount) for vector in request.demands]
    commands = [tuple(command.words) for command in request.commands]
    environments = [tuple((v.name, v.value) for v in e.variables) for e in request.environments]
    return [
        StartContainers(
            start.attempt_id,
            start.node_id,
            tuple(
                [
                    TaskLaunch(
                        item.container_id,
                        item.stage,
                        item.task,
                        item.attempt,
                        item.duration_s,
                        _at(demands, item.demand),
                        _at(commands, item.command),
                        _at(environments, item.environment),
                        item.reusable,
                        item.remote,
                        _at(demands, item.granted),
                        tuple(item.tasks),
                    )
                    for item in start.items
                ]
            ),
            start.boot,
        )
        for start in request.starts
    ]


def _at(table: Sequence[_T], position: int) -> _T:
    try:
        return table[position]
    except IndexError:
        raise CodecError(f"position {position} is outside a table of {len(table)}") from None


def encode_containers(
    follower: str,
    messages: Iterable[StopContainers | QueryContainers],
    tokens: TokensOf = no_tokens,
) -> pb.ContainersRequest:
    """Return a bulk stop or query."""
    request = pb.ContainersRequest(follower=follower)
    for message in messages:
        request.nodes.add(
            attempt_id=message.attempt_id, node_id=message.node_id, containers=message.containers
        )
        request.tokens.extend(tokens(message.containers))
    return request


def decode_stops(request: pb.ContainersRequest) -> list[StopContainers]:
    """Return a bulk stop."""
    return [
        StopContainers(node.attempt_id, node.node_id, tuple(node.containers))
        for node in request.nodes
    ]


def decode_queries(request: pb.ContainersRequest) -> list[QueryContainers]:
    """Return a bulk query."""
    return [
        QueryContainers(node.attempt_id, node.node_id, tuple(node.containers))
        for node in request.nodes
    ]


def encode_answers(messages: Iterable[NodeToMaster]) -> pb.ContainersResponse:
    """Return what nodes tell masters."""
    response = pb.ContainersResponse()
    make = pb.ItemAnswer
    for message in messages:
        if isinstance(message, StartAnswered):
            response.answers.add(
                node_id=message.node_id,
                attempt_id=message.attempt_id,
                items=[
                    make(
                        container_id=item.container_id,
                        stage=item.stage,
                        task=item.task,
                        error=item.error,
                        count=item.count,
                        attempt=item.attempt,
                        granted=item.granted,
                    )
                    for item in message.items
                ],
            )
        else:
            response.ended.add(
                node_id=message.node_id,
                attempt_id=message.attempt_id,
                ended=encode_task_ends(message.ended),
                container_use=encode_uses(message.container_use),
                sent_s=message.sent_s,
            )
    return response


def decode_answers(response: pb.ContainersResponse) -> list[NodeToMaster]:
    """Return what nodes tell masters; raises CodecError.

    Ends come first, as a node tells them before its answer: who asks what runs in a container must
    not take for not begun what has just ended there.
    """
    messages: list[NodeToMaster] = [
        TasksEnded(
            end.node_id,
            end.attempt_id,
            decode_task_ends(end.ended),
            decode_uses(end.container_use),
            end.sent_s,
        )
        for end in response.ended
    ]
    messages.extend(
        StartAnswered(
            answer.node_id,
            answer.attempt_id,
            tuple(
                [
                    ItemAnswer(
                        item.container_id,
                        item.stage,
                        item.task,
                        item.error,
                        item.count or 1,
                        item.attempt,
                        tuple(item.granted),
                    )
                    for item in answer.items
                ]
            ),
        )
        for answer in response.answers
    )
    return messages


def encode_launches(
    launch: Iterable[MasterLaunch], kill: Iterable[int], tokens: Iterable[bytes] = ()
) -> host.HostOrders:
    """Return masters to start, with their tokens, and to kill in an AM host."""
    return host.HostOrders(
        launch=[encode_master_launch(item) for item in launch], kill=list(kill), tokens=list(tokens)
    )


def decode_launches(orders: host.HostOrders) -> tuple[list[MasterLaunch], list[int], list[bytes]]:
    """Return masters to start, containers of masters to kill, and tokens of masters."""
    launch = [decode_master_launch(item) for item in orders.launch]
    return launch, list(orders.kill), list(orders.tokens)


class MasterEnded(NamedTuple):
    """A master that ended in an AM host."""

    container_id: ContainerId
    outcome: Outcome
    exit_code: int
    message: str


def encode_ends(ends: Iterable[MasterEnded]) -> host.HostReports:
    """Return masters that ended in an AM host."""
    reports = host.HostReports()
    for container, outcome, exit_code, message in ends:
        reports.ended.add(
            container_id=container,
            outcome=outcome,
            exit_code=exit_code,
            message=message,
        )
    return reports


def decode_ends(reports: host.HostReports) -> list[MasterEnded]:
    """Return masters that ended in an AM host; raises CodecError for an unknown outcome."""
    return [
        MasterEnded(item.container_id, outcome_of(item.outcome), item.exit_code, item.message)
        for item in reports.ended
    ]
