"""Application Master <-> Resource Manager: batches to and from `proto/master.proto`."""

from collections.abc import Iterable

from weft.protocol.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    ContainersAsked,
    ContainersGranted,
    FromMaster,
    ToMaster,
)
from weft.wire import master_pb2 as pb
from weft.wire.codec_common import Refuse, decode_each, shown
from weft.wire.schema import OneOf, schema_of
from weft.wire.tokens import Shown

_REPORTS = OneOf(
    "report",
    "a report of a master",
    allocate=schema_of(ContainersAsked, pb.AllocateRequest),
    register_application_master=schema_of(AttemptRegistered, pb.RegisterApplicationMaster),
    finish_application_master=schema_of(AttemptFinished, pb.FinishApplicationMaster),
)
_ORDERS = OneOf(
    "order",
    "an order to a master",
    allocated=schema_of(ContainersGranted, pb.AllocateResponse),
    registered=schema_of(AttemptAccepted, pb.ApplicationMasterRegistered),
    stop=schema_of(AttemptStopped, pb.StopApplicationMaster),
    unregistered=schema_of(AttemptUnregistered, pb.ApplicationMasterUnregistered),
)


def encode_reports(messages: Iterable[FromMaster | Shown]) -> pb.MasterReports:
    """Return a batch of what masters say."""
    batch = pb.MasterReports()
    for message in messages:
        if isinstance(message, Shown):
            batch.tokens.extend(message.tokens)
        else:
            _REPORTS.fill(batch.items.add(), message)
    return batch


def decode_reports(
    batch: pb.MasterReports, refuse: Refuse | None = None
) -> list[FromMaster | Shown]:
    """Return a batch of what masters say; raises CodecError, or tells `refuse` (`decode_each`)."""
    return [*shown(batch.tokens), *decode_each(batch.items, _REPORTS.read, refuse)]


def encode_orders(messages: Iterable[ToMaster | Shown]) -> pb.MasterOrders:
    """Return a batch of what masters are told."""
    batch = pb.MasterOrders()
    for message in messages:
        if isinstance(message, Shown):
            batch.tokens.extend(message.tokens)
        else:
            _ORDERS.fill(batch.items.add(), message)
    return batch


def decode_orders(batch: pb.MasterOrders, refuse: Refuse | None = None) -> list[ToMaster | Shown]:
    """Return a batch of what masters are told.

    Raises CodecError, or InputError for a job, or tells `refuse` (`decode_each`).
    """
    return [*shown(batch.tokens), *decode_each(batch.items, _ORDERS.read, refuse)]
