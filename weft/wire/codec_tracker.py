"""Node Manager <-> Resource Manager: batches of messages to and from `proto/tracker.proto`."""

from collections.abc import Iterable

from weft.protocol.messages import (
    FromNode,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    ToNode,
)
from weft.wire import tracker_pb2 as pb
from weft.wire.codec_common import Refuse, decode_each, shown
from weft.wire.idle import IDLE_MAX, IdleHeard, IdleTold
from weft.wire.schema import CodecError, OneOf, schema_of
from weft.wire.tokens import KeysTold, Shown, TimeTold

_REPORTS = OneOf(
    "report",
    "a report of a node",
    heartbeat=schema_of(NodeHeartbeated, pb.NodeHeartbeat),
    register_node=schema_of(NodeRegistered, pb.RegisterNode),
    unregister_node=schema_of(NodeUnregistered, pb.UnregisterNode),
)
_ORDERS = OneOf(
    "order",
    "an order to a node",
    heartbeat=schema_of(NodeAnswered, pb.NodeHeartbeatResponse),
    registered=schema_of(NodeAccepted, pb.NodeRegistration),
)


def encode_reports(messages: Iterable[FromNode | Shown | IdleTold]) -> pb.TrackerReports:
    """Return a batch of what nodes say."""
    batch = pb.TrackerReports()
    for message in messages:
        if isinstance(message, Shown):
            batch.tokens.extend(message.tokens)
            continue
        if isinstance(message, IdleTold):
            batch.idle.add(number=message.number, node_ids=message.node_ids)
            continue
        _REPORTS.fill(batch.items.add(), message)
    return batch


def decode_reports(
    batch: pb.TrackerReports, refuse: Refuse | None = None
) -> list[FromNode | Shown | IdleTold]:
    """Return a batch of what nodes say; raises CodecError, or tells `refuse` (`decode_each`)."""
    return [
        *shown(batch.tokens),
        *decode_each(batch.items, _REPORTS.read, refuse),
        *decode_each(batch.idle, _decode_idle, refuse),
    ]


def _decode_idle(item: pb.IdleNodes) -> IdleTold:
    if len(item.node_ids) > IDLE_MAX:
        raise CodecError(f"{len(item.node_ids)} idle nodes are more than {IDLE_MAX}")
    # A node's heartbeat counts once.
    return IdleTold(item.number, tuple(dict.fromkeys(item.node_ids)))


def encode_orders(
    messages: Iterable[ToNode | Shown | KeysTold | TimeTold | IdleHeard],
) -> pb.TrackerOrders:
    """Return a batch of what nodes are told."""
    batch = pb.TrackerOrders()
    for message in messages:
        if isinstance(message, Shown):
            batch.tokens.extend(message.tokens)
            continue
        if isinstance(message, KeysTold):
            for number, secret in message.keys:
                batch.keys.add(node_id=message.node_id, number=number, secret=secret)
            continue
        if isinstance(message, TimeTold):
            batch.now_s = message.now_s
            continue
        if isinstance(message, IdleHeard):
            batch.heard.add(number=message.number, unheard=message.unheard)
            continue
        _ORDERS.fill(batch.items.add(), message)
    return batch


def decode_orders(
    batch: pb.TrackerOrders, refuse: Refuse | None = None
) -> list[ToNode | Shown | KeysTold | TimeTold | IdleHeard]:
    """Return a batch of what nodes are told; raises CodecError, or tells `refuse`."""
    time = [TimeTold(batch.now_s)] if batch.now_s > 0.0 else []
    return [
        *time,
        *shown(batch.tokens),
        *_keys(batch.keys),
        *decode_each(batch.items, _ORDERS.read, refuse),
        *[IdleHeard(one.number, tuple(one.unheard)) for one in batch.heard],
    ]


def _keys(told: Iterable[pb.NodeKey]) -> list[KeysTold]:
    """Return the keys of each node in turn; numbers ascend, so a lower one begins a new set."""
    sets: list[KeysTold] = []
    for key in told:
        one = (key.number, key.secret)
        if sets and sets[-1].node_id == key.node_id and sets[-1].keys[-1][0] < key.number:
            sets[-1] = KeysTold(key.node_id, (*sets[-1].keys, one))
        else:
            sets.append(KeysTold(key.node_id, (one,)))
    return sets
