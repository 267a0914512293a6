"""Application Master <-> Node Manager: bulk calls to and from `proto/containers.proto`."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from weft.model.ids import ContainerId
from weft.protocol.messages import (
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
from weft.wire.schema import CodecError, schema_of

_STOP = schema_of(StopContainers, pb.NodeContainers)
_QUERY = schema_of(QueryContainers, pb.NodeContainers)
_ANSWER = schema_of(StartAnswered, pb.StartAnswer)
_ENDED = schema_of(TasksEnded, pb.TasksEnd)
_LAUNCH = schema_of(MasterLaunch, words.MasterLaunch)
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
        (_STOP if isinstance(message, StopContainers) else _QUERY).fill(
            request.nodes.add(), message
        )
        request.tokens.extend(tokens(message.containers))
    return request


def decode_stops(request: pb.ContainersRequest) -> list[StopContainers]:
    """Return a bulk stop."""
    return [_STOP.read(node) for node in request.nodes]


def decode_queries(request: pb.ContainersRequest) -> list[QueryContainers]:
    """Return a bulk query."""
    return [_QUERY.read(node) for node in request.nodes]


def encode_answers(messages: Iterable[NodeToMaster]) -> pb.ContainersResponse:
    """Return what nodes tell masters."""
    response = pb.ContainersResponse()
    for message in messages:
        if isinstance(message, StartAnswered):
            _ANSWER.fill(response.answers.add(), message)
        else:
            _ENDED.fill(response.ended.add(), message)
    return response


def decode_answers(response: pb.ContainersResponse) -> list[NodeToMaster]:
    """Return what nodes tell masters; raises CodecError.

    Ends come first, as a node tells them before its answer: who asks what runs in a container must
    not take for not begun what has just ended there.
    """
    messages = [_ENDED.read(end) for end in response.ended]
    messages.extend([_ANSWER.read(answer) for answer in response.answers])
    return messages


def encode_launches(
    launch: Iterable[MasterLaunch], kill: Iterable[int], tokens: Iterable[bytes] = ()
) -> host.HostOrders:
    """Return masters to start, with their tokens, and to kill in an AM host."""
    return host.HostOrders(
        launch=[_LAUNCH.make(item) for item in launch], kill=list(kill), tokens=list(tokens)
    )


def decode_launches(orders: host.HostOrders) -> tuple[list[MasterLaunch], list[int], list[bytes]]:
    """Return masters to start, containers of masters to kill, and tokens of masters."""
    launch = [_LAUNCH.read(item) for item in orders.launch]
    return launch, list(orders.kill), list(orders.tokens)


class MasterEnded(NamedTuple):
    """A master that ended in an AM host."""

    container_id: ContainerId
    outcome: Outcome
    exit_code: int
    message: str


_MASTER_ENDED = schema_of(MasterEnded, host.MasterEnd)


def encode_ends(ends: Iterable[MasterEnded]) -> host.HostReports:
    """Return masters that ended in an AM host."""
    return host.HostReports(ended=[_MASTER_ENDED.make(end) for end in ends])


def decode_ends(reports: host.HostReports) -> list[MasterEnded]:
    """Return masters that ended in an AM host; raises CodecError for an unknown outcome."""
    return [_MASTER_ENDED.read(item) for item in reports.ended]
