"""The words that all services share, to and from protobuf.

Messages name their fields when they are made. The many (heartbeats, asks, grants, starts, ends) are
made by position, as names double what it costs; `tests/wire/test_codec.py` makes each of them
with distinct values, there and back, so that no field can slip.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from weft.model.errors import InputError
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol.messages import ContainerEnd, ContainerUse, MasterLaunch, Outcome, TaskEnd
from weft.wire import words_pb2 as pb
from weft.wire.tokens import Shown

# Positions in these tuples are the numbers on the wire: a lookup is far cheaper than Enum(value).
OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)
_T = TypeVar("_T")
_KINDS = (Kind.DIVISIBLE, Kind.RIGID)


class CodecError(ValueError):
    """A message of a peer that speaks another version, or is no peer at all."""


# Told of a message of a batch that was left out, and why.
Refuse = Callable[[Exception], None]


def decode_each(
    items: Iterable[Any], decode: Callable[[Any], _T], refuse: Refuse | None = None
) -> list[_T]:
    """Decode a batch.

    One message that is not understood is told to `refuse` and left out, as the others of the batch
    may be of other senders; without `refuse` CodecError is raised.
    """
    if refuse is None:
        return [decode(item) for item in items]
    messages = []
    for item in items:
        try:
            messages.append(decode(item))
        except (CodecError, InputError) as error:
            refuse(error)
    return messages


def shown(tokens: Iterable[bytes]) -> list[Shown]:
    """Return the tokens of a batch, which come before its messages."""
    found = tuple(tokens)
    return [Shown(found)] if found else []


def outcome_of(number: int) -> Outcome:
    """Return the outcome of a number on the wire; raises CodecError."""
    if 0 <= number < len(OUTCOMES):
        return OUTCOMES[number]
    raise CodecError(f"unknown outcome {number}")


def encode_amounts(amounts: Mapping[str, float]) -> list[pb.Amount]:
    """Return named amounts in their order."""
    return [pb.Amount(name=name, amount=amount) for name, amount in amounts.items()]


def decode_amounts(items: Iterable[pb.Amount]) -> dict[str, float]:
    """Return named amounts in their order."""
    return {item.name: item.amount for item in items}


def encode_types(types: ResourceTypes) -> list[pb.ResourceType]:
    """Return the resource types in declared order."""
    return [
        pb.ResourceType(name=t.name, kind=pb.ResourceKind.ValueType(_KINDS.index(t.kind)))
        for t in types
    ]


def decode_types(items: Iterable[pb.ResourceType]) -> ResourceTypes:
    """Return the resource types in declared order; raises CodecError for an unknown kind."""
    types = []
    for item in items:
        if not 0 <= item.kind < len(_KINDS):
            raise CodecError("unknown kind of resource")
        types.append(ResourceType(item.name, _KINDS[item.kind]))
    return ResourceTypes(tuple(types))


def encode_master_launch(item: MasterLaunch) -> pb.MasterLaunch:
    """Return one master to start."""
    return pb.MasterLaunch(
        container_id=item.container_id,
        attempt_id=item.attempt_id,
        demand=item.demand,
        command=item.command,
        environment=[pb.Variable(name=name, value=value) for name, value in item.environment],
    )


def decode_master_launch(item: pb.MasterLaunch) -> MasterLaunch:
    """Return one master to start."""
    return MasterLaunch(
        container_id=item.container_id,
        attempt_id=item.attempt_id,
        demand=tuple(item.demand),
        command=tuple(item.command),
        environment=tuple((one.name, one.value) for one in item.environment),
    )


def encode_container_ends(ends: Iterable[ContainerEnd]) -> list[pb.ContainerEnd]:
    """Return ended containers."""
    make = pb.ContainerEnd
    return [
        make(
            container_id=end.container_id,
            outcome=end.outcome,  # type: ignore[arg-type]
            exit_code=end.exit_code,
            stage=end.stage,
            task=end.task,
            attempt=end.attempt,
            run_s=end.run_s,
            message=end.message,
            tasks=end.tasks,
        )
        for end in ends
    ]


def decode_container_ends(items: Iterable[pb.ContainerEnd]) -> tuple[ContainerEnd, ...]:
    """Return ended containers; raises CodecError for an unknown outcome."""
    return tuple(
        [
            ContainerEnd(
                item.container_id,
                outcome_of(item.outcome),
                item.exit_code,
                item.stage,
                item.task,
                item.attempt,
                item.run_s,
                item.message,
                tuple(item.tasks),
            )
            for item in items
        ]
    )


def encode_task_ends(ends: Iterable[TaskEnd]) -> list[pb.TaskEnd]:
    """Return ended tasks."""
    make = pb.TaskEnd
    return [
        make(
            container_id=end.container_id,
            stage=end.stage,
            task=end.task,
            attempt=end.attempt,
            outcome=end.outcome,  # type: ignore[arg-type]
            exit_code=end.exit_code,
            run_s=end.run_s,
            message=end.message,
            use=end.use,
        )
        for end in ends
    ]


def decode_task_ends(items: Iterable[pb.TaskEnd]) -> tuple[TaskEnd, ...]:
    """Return ended tasks; raises CodecError for an unknown outcome."""
    return tuple(
        [
            TaskEnd(
                item.container_id,
                item.stage,
                item.task,
                item.attempt,
                outcome_of(item.outcome),
                item.exit_code,
                item.run_s,
                item.message,
                tuple(item.use),
            )
            for item in items
        ]
    )


def encode_uses(uses: Iterable[ContainerUse]) -> list[pb.ContainerUse]:
    """Return measured use per container."""
    return [pb.ContainerUse(container_id=container, use=use) for container, use in uses]


def decode_uses(items: Iterable[pb.ContainerUse]) -> tuple[ContainerUse, ...]:
    """Return measured use per container."""
    return tuple([ContainerUse(item.container_id, tuple(item.use)) for item in items])
