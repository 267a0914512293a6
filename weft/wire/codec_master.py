"""Application Master <-> Resource Manager: batches to and from `proto/master.proto`."""

from collections.abc import Iterable

from weft.protocol.messages import (
    Ask,
    AsksRefused,
    AskType,
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    Container,
    ContainersAsked,
    ContainersGranted,
    FinishedTask,
    FromMaster,
    Preemption,
    ToMaster,
)
from weft.wire import master_pb2 as pb
from weft.wire.codec_common import (
    CodecError,
    Refuse,
    decode_container_ends,
    decode_each,
    decode_types,
    encode_container_ends,
    encode_types,
    shown,
)
from weft.wire.codec_job import decode_job, encode_job
from weft.wire.tokens import Shown

_ASK_TYPES = tuple(AskType)


def encode_reports(messages: Iterable[FromMaster | Shown]) -> pb.MasterReports:
    """Return a batch of what masters say."""
    batch = pb.MasterReports()
    for message in messages:
        if isinstance(message, Shown):
            batch.tokens.extend(message.tokens)
            continue
        item = batch.items.add()
        if isinstance(message, ContainersAsked):
            _fill_asked(item.allocate, message)
        elif isinstance(message, AttemptRegistered):
            item.register_application_master.attempt_id = message.attempt_id
            item.register_application_master.address = message.address
            item.register_application_master.tracking_url = message.tracking_url
            item.register_application_master.fresh = message.fresh
            item.register_application_master.takes_over = message.takes_over
            for container, node in message.held:
                item.register_application_master.held.add(container_id=container, node_id=node)
        else:
            item.finish_application_master.attempt_id = message.attempt_id
            item.finish_application_master.succeeded = message.succeeded
            item.finish_application_master.diagnostics = message.diagnostics
            item.finish_application_master.tracking_url = message.tracking_url
            item.finish_application_master.status = message.status
    return batch


def decode_reports(
    batch: pb.MasterReports, refuse: Refuse | None = None
) -> list[FromMaster | Shown]:
    """Return a batch of what masters say; raises CodecError, or tells `refuse` (`decode_each`)."""
    return [*shown(batch.tokens), *decode_each(batch.items, _decode_report, refuse)]


def _decode_report(item: pb.MasterReport) -> FromMaster:
    which = item.WhichOneof("report")
    if which == "allocate":
        return _decode_asked(item.allocate)
    if which == "register_application_master":
        registered = item.register_application_master
        held = tuple((one.container_id, one.node_id) for one in registered.held)
        return AttemptRegistered(
            attempt_id=registered.attempt_id,
            address=registered.address,
            held=held,
            tracking_url=registered.tracking_url,
            fresh=registered.fresh,
            takes_over=registered.takes_over,
        )
    if which == "finish_application_master":
        finished = item.finish_application_master
        return AttemptFinished(
            attempt_id=finished.attempt_id,
            succeeded=finished.succeeded,
            diagnostics=finished.diagnostics,
            tracking_url=finished.tracking_url,
            status=finished.status,
        )
    raise CodecError("a report of a master that says nothing: another version?")


def encode_orders(messages: Iterable[ToMaster | Shown]) -> pb.MasterOrders:
    """Return a batch of what masters are told."""
    batch = pb.MasterOrders()
    for message in messages:
        if isinstance(message, Shown):
            batch.tokens.extend(message.tokens)
            continue
        item = batch.items.add()
        if isinstance(message, ContainersGranted):
            _fill_granted(item.allocated, message)
        elif isinstance(message, AttemptAccepted):
            item.registered.CopyFrom(_encode_accepted(message))
        elif isinstance(message, AttemptStopped):
            item.stop.attempt_id = message.attempt_id
            item.stop.reason = message.reason
        else:
            item.unregistered.attempt_id = message.attempt_id
    return batch


def decode_orders(batch: pb.MasterOrders, refuse: Refuse | None = None) -> list[ToMaster | Shown]:
    """Return a batch of what masters are told.

    Raises CodecError, or InputError for a job, or tells `refuse` (`decode_each`).
    """
    return [*shown(batch.tokens), *decode_each(batch.items, _decode_order, refuse)]


def _decode_order(item: pb.MasterOrder) -> ToMaster:
    which = item.WhichOneof("order")
    if which == "allocated":
        return _decode_granted(item.allocated)
    if which == "registered":
        return _decode_accepted(item.registered)
    if which == "stop":
        return AttemptStopped(item.stop.attempt_id, item.stop.reason)
    if which == "unregistered":
        return AttemptUnregistered(item.unregistered.attempt_id)
    raise CodecError("an order to a master that says nothing: another version?")


def _fill_asked(to: pb.AllocateRequest, message: ContainersAsked) -> None:
    to.attempt_id = message.attempt_id
    to.request_id = message.request_id
    if message.acks:
        to.acks.extend(message.acks)
    if message.asks:
        to.asks.extend([_encode_ask(ask) for ask in message.asks])
    if message.releases:
        to.releases.extend(message.releases)
    to.progress = message.progress
    to.remaining_work = message.remaining_work
    if message.blacklist is not None:
        to.blacklist.SetInParent()
        to.blacklist.node_ids.extend(message.blacklist)
    to.remaining_path_s = message.remaining_path_s
    to.epoch = message.epoch


def _decode_asked(item: pb.AllocateRequest) -> ContainersAsked:
    return ContainersAsked(
        item.attempt_id,
        item.request_id,
        tuple(item.acks),
        tuple([_decode_ask(ask) for ask in item.asks]),
        tuple(item.releases),
        item.progress,
        item.remaining_work,
        tuple(item.blacklist.node_ids) if item.HasField("blacklist") else None,
        item.remaining_path_s,
        item.epoch,
    )


def _encode_ask(ask: Ask) -> pb.Ask:
    return pb.Ask(
        ask_id=ask.ask_id,
        total=ask.total,
        demand=ask.demand,
        duration_s=ask.duration_s,
        pri_score=ask.pri_score,
        kind=ask.kind,  # type: ignore[arg-type]
        stage=ask.stage,
        nodes=ask.nodes,
        racks=ask.racks,
        label=ask.label,
        gang=ask.gang,
        strict=ask.strict,
        counts=ask.counts,
    )


def _decode_ask(item: pb.Ask) -> Ask:
    if not 0 <= item.kind < len(_ASK_TYPES):
        raise CodecError(f"unknown kind of ask {item.kind}")
    return Ask(
        item.ask_id,
        item.total,
        tuple(item.demand),
        item.duration_s,
        item.pri_score,
        _ASK_TYPES[item.kind],
        item.stage,
        tuple(item.nodes),
        tuple(item.racks),
        item.label,
        item.gang,
        item.strict,
        tuple(item.counts),
    )


def _fill_granted(to: pb.AllocateResponse, message: ContainersGranted) -> None:
    to.attempt_id = message.attempt_id
    to.response_id = message.response_id
    if message.acks:
        to.acks.extend(message.acks)
    if message.containers:
        make = pb.Container
        to.containers.extend(
            [
                make(
                    container_id=c.container_id,
                    node_id=c.node_id,
                    ask_id=c.ask_id,
                    boot=c.boot,
                    count=c.count,
                )
                for c in message.containers
            ]
        )
    if message.ended:
        to.ended.extend(encode_container_ends(message.ended))
    to.share.extend(message.share)
    to.headroom.extend(message.headroom)
    for node, address in message.addresses:
        to.addresses.add(node_id=node, address=address)
    to.resync = message.resync
    to.epoch = message.epoch
    for node, rack in message.racks:
        to.racks.add(node_id=node, rack=rack)
    for container, by_s in message.preempt:
        to.preempt.add(container_id=container, by_s=by_s)
    for capacity, count in message.machines:
        to.machines.add(capacity=capacity, count=count)
    to.speeds.extend(message.speeds)
    for names in message.labels:
        to.labels.add(names=names)
    for one in message.refused:
        to.refused.add(request_id=one.request_id, asks=one.asks, reason=one.reason)


def _decode_container(item: pb.Container) -> Container:
    return Container(item.container_id, item.node_id, item.ask_id, item.boot, item.count or 1)


def _decode_granted(item: pb.AllocateResponse) -> ContainersGranted:
    return ContainersGranted(
        item.attempt_id,
        item.response_id,
        tuple(item.acks),
        tuple([_decode_container(c) for c in item.containers]),
        decode_container_ends(item.ended),
        tuple(item.share),
        tuple(item.headroom),
        tuple([(a.node_id, a.address) for a in item.addresses]),
        item.resync,
        item.epoch,
        tuple([(r.node_id, r.rack) for r in item.racks]),
        tuple([Preemption(p.container_id, p.by_s) for p in item.preempt]),
        tuple([(tuple(m.capacity), m.count) for m in item.machines]),
        tuple(item.speeds),
        tuple([tuple(each.names) for each in item.labels]),
        tuple([AsksRefused(r.request_id, tuple(r.asks), r.reason) for r in item.refused]),
    )


def _encode_accepted(message: AttemptAccepted) -> pb.ApplicationMasterRegistered:
    return pb.ApplicationMasterRegistered(
        attempt_id=message.attempt_id,
        job_json=encode_job(message.job),
        types=encode_types(message.types),
        machines=[pb.MachineCount(capacity=c, count=n) for c, n in message.machines],
        share=message.share,
        finished=[pb.FinishedTask(stage=s, task=t, run_s=r) for s, t, r in message.finished],
        heartbeat_s=message.heartbeat_s,
        prompt=message.prompt,
        cluster_ts=message.cluster_ts,
        seed=message.seed,
        epoch=message.epoch,
        racks=[pb.NodeRack(node_id=node, rack=rack) for node, rack in message.racks],
        held=[
            pb.Container(
                container_id=c.container_id,
                node_id=c.node_id,
                ask_id=c.ask_id,
                boot=c.boot,
                count=c.count,
            )
            for c in message.held
        ],
        addresses=[pb.NodeAddress(node_id=n, address=place) for n, place in message.addresses],
        speeds=message.speeds,
        labels=[pb.Labels(names=names) for names in message.labels],
    )


def _decode_accepted(item: pb.ApplicationMasterRegistered) -> AttemptAccepted:
    return AttemptAccepted(
        attempt_id=item.attempt_id,
        job=decode_job(item.job_json),
        types=decode_types(item.types),
        machines=tuple((tuple(m.capacity), m.count) for m in item.machines),
        share=tuple(item.share),
        finished=tuple([FinishedTask(f.stage, f.task, f.run_s) for f in item.finished]),
        heartbeat_s=item.heartbeat_s,
        prompt=item.prompt,
        cluster_ts=item.cluster_ts,
        seed=item.seed,
        epoch=item.epoch,
        racks=tuple([(r.node_id, r.rack) for r in item.racks]),
        held=tuple([_decode_container(c) for c in item.held]),
        addresses=tuple([(a.node_id, a.address) for a in item.addresses]),
        speeds=tuple(item.speeds),
        labels=tuple([tuple(each.names) for each in item.labels]),
    )
