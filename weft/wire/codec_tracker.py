"""Node Manager <-> Resource Manager: batches of messages to and from `proto/tracker.proto`."""

from collections.abc import Iterable

from weft.protocol.messages import (
    BegunTask,
    FromNode,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    RunningContainer,
    ToNode,
)
from weft.wire import tracker_pb2 as pb
from weft.wire.codec_common import (
    CodecError,
    Refuse,
    decode_amounts,
    decode_container_ends,
    decode_each,
    decode_master_launch,
    decode_task_ends,
    decode_types,
    decode_uses,
    encode_amounts,
    encode_container_ends,
    encode_master_launch,
    encode_task_ends,
    encode_types,
    encode_uses,
    shown,
)
from weft.wire.idle import IDLE_MAX, IdleHeard, IdleTold
from weft.wire.tokens import KeysTold, Shown, TimeTold


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
        item = batch.items.add()
        if isinstance(message, NodeHeartbeated):
            _fill_heartbeat(item.heartbeat, message)
        elif isinstance(message, NodeRegistered):
            item.register_node.CopyFrom(_encode_registered(message))
        else:
            item.unregister_node.node_id = message.node_id
    return batch


def decode_reports(
    batch: pb.TrackerReports, refuse: Refuse | None = None
) -> list[FromNode | Shown | IdleTold]:
    """Return a batch of what nodes say; raises CodecError, or tells `refuse` (`decode_each`)."""
    return [
        *shown(batch.tokens),
        *decode_each(batch.items, _decode_report, refuse),
        *decode_each(batch.idle, _decode_idle, refuse),
    ]


def _decode_idle(item: pb.IdleNodes) -> IdleTold:
    if len(item.node_ids) > IDLE_MAX:
        raise CodecError(f"{len(item.node_ids)} idle nodes are more than {IDLE_MAX}")
    # A node's heartbeat counts once.
    return IdleTold(item.number, tuple(dict.fromkeys(item.node_ids)))


def _decode_report(item: pb.TrackerReport) -> FromNode:
    which = item.WhichOneof("report")
    if which == "heartbeat":
        return _decode_heartbeat(item.heartbeat)
    if which == "register_node":
        return _decode_registered(item.register_node)
    if which == "unregister_node":
        return NodeUnregistered(item.unregister_node.node_id)
    raise CodecError("a report of a node that says nothing: another version?")


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
        item = batch.items.add()
        if isinstance(message, NodeAnswered):
            _fill_answered(item.heartbeat, message)
        else:
            item.registered.CopyFrom(
                pb.NodeRegistration(
                    node_id=message.node_id,
                    types=encode_types(message.types),
                    heartbeat_s=message.heartbeat_s,
                    prompt=message.prompt,
                    cluster_ts=message.cluster_ts,
                    life=message.life,
                    expiry_s=message.expiry_s,
                    request_id=message.request_id,
                )
            )
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
        *decode_each(batch.items, _decode_order, refuse),
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


def _decode_order(item: pb.TrackerOrder) -> ToNode:
    which = item.WhichOneof("order")
    if which == "heartbeat":
        return _decode_answered(item.heartbeat)
    if which == "registered":
        to = item.registered
        return NodeAccepted(
            node_id=to.node_id,
            types=decode_types(to.types),
            heartbeat_s=to.heartbeat_s,
            prompt=to.prompt,
            cluster_ts=to.cluster_ts,
            life=to.life,
            expiry_s=to.expiry_s,
            request_id=to.request_id,
        )
    raise CodecError("an order to a node that says nothing: another version?")


def _fill_heartbeat(to: pb.NodeHeartbeat, message: NodeHeartbeated) -> None:
    """Fill a heartbeat; empty fields are not touched, as most heartbeats are empty."""
    to.node_id = message.node_id
    to.request_id = message.request_id
    if message.acks:
        to.acks.extend(message.acks)
    if message.ended:
        to.ended.extend(encode_container_ends(message.ended))
    if message.tasks_ended:
        to.tasks_ended.extend(encode_task_ends(message.tasks_ended))
    if message.use:
        to.use.extend(message.use)
    if message.container_use:
        to.container_use.extend(encode_uses(message.container_use))
    if message.unhealthy:
        to.unhealthy = message.unhealthy
    if message.begun:
        to.begun.extend(
            pb.BegunTask(container_id=container, stage=stage, task=task, attempt=attempt)
            for container, stage, task, attempt in message.begun
        )


def _decode_heartbeat(item: pb.NodeHeartbeat) -> NodeHeartbeated:
    return NodeHeartbeated(
        item.node_id,
        item.request_id,
        tuple(item.acks),
        decode_container_ends(item.ended),
        decode_task_ends(item.tasks_ended),
        tuple(item.use),
        decode_uses(item.container_use),
        item.unhealthy,
        tuple(
            [BegunTask(one.container_id, one.stage, one.task, one.attempt) for one in item.begun]
        ),
    )


def _encode_registered(message: NodeRegistered) -> pb.RegisterNode:
    return pb.RegisterNode(
        node_id=message.node_id,
        address=message.address,
        rack=message.rack,
        labels=message.labels,
        capacity=encode_amounts(message.capacity),
        running=[
            pb.RunningContainer(
                container_id=running.container_id,
                demand=running.demand,
                tasks=[
                    pb.RunningTask(stage=stage, task=task, attempt=attempt)
                    for stage, task, attempt in running.tasks
                ],
                started_s=running.started_s,
            )
            for running in message.running
        ],
        boot=message.boot,
        life=message.life,
        token=message.token,
        request_id=message.request_id,
        unhealthy=message.unhealthy,
        lacking=message.lacking,
        speed=message.speed,
        files=message.files,
    )


def _decode_registered(item: pb.RegisterNode) -> NodeRegistered:
    return NodeRegistered(
        node_id=item.node_id,
        address=item.address,
        rack=item.rack,
        labels=tuple(item.labels),
        capacity=decode_amounts(item.capacity),
        running=tuple(
            RunningContainer(
                container_id=running.container_id,
                demand=tuple(running.demand),
                tasks=tuple((t.stage, t.task, t.attempt) for t in running.tasks),
                started_s=running.started_s,
            )
            for running in item.running
        ),
        boot=item.boot,
        life=item.life,
        token=item.token,
        request_id=item.request_id,
        unhealthy=item.unhealthy,
        lacking=item.lacking,
        speed=item.speed if item.HasField("speed") else 1.0,
        files=item.files,
    )


def _fill_answered(to: pb.NodeHeartbeatResponse, message: NodeAnswered) -> None:
    to.node_id = message.node_id
    to.response_id = message.response_id
    if message.acks:
        to.acks.extend(message.acks)
    if message.start:
        to.start.extend([encode_master_launch(item) for item in message.start])
    if message.stop:
        to.stop.extend(message.stop)
    to.next_heartbeat_s = message.next_heartbeat_s
    to.resync = message.resync
    to.shutdown = message.shutdown
    to.life = message.life
    to.token = message.token
    if message.over:
        to.over.extend(message.over)
    if message.spare:
        to.spare.extend(message.spare)


def _decode_answered(item: pb.NodeHeartbeatResponse) -> NodeAnswered:
    return NodeAnswered(
        item.node_id,
        item.response_id,
        tuple(item.acks),
        tuple([decode_master_launch(start) for start in item.start]),
        tuple(item.stop),
        item.next_heartbeat_s,
        item.resync,
        item.shutdown,
        item.life,
        item.token,
        tuple(item.over),
        tuple(item.spare),
    )
