"""What clients are answered: reports to and from `proto/client.proto`."""

from collections.abc import Iterable, Mapping

from weft.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Explanation,
    ManagerReport,
    NodeReport,
    QueueReport,
    StageExplanation,
    StageReport,
)
from weft.wire import client_pb2 as pb
from weft.wire.codec_words import decode_amounts, encode_amounts


def _encode_counts(counts: Mapping[str, int]) -> list[pb.Count]:
    return [pb.Count(name=name, count=count) for name, count in counts.items()]


def _decode_counts(items: Iterable[pb.Count]) -> dict[str, int]:
    return {item.name: item.count for item in items}


def _encode_stage(report: StageReport) -> pb.StageReport:
    return pb.StageReport(
        name=report.name,
        tasks=report.tasks,
        pending=report.pending,
        running=report.running,
        finished=report.finished,
        failed_attempts=report.failed_attempts,
        parents=[pb.StageParent(stage=stage, edge=edge) for stage, edge in report.parents],
    )


def _decode_stage(item: pb.StageReport) -> StageReport:
    return StageReport(
        item.name,
        item.tasks,
        item.pending,
        item.running,
        item.finished,
        item.failed_attempts,
        tuple((parent.stage, parent.edge) for parent in item.parents),
    )


def encode_application(report: ApplicationReport) -> pb.ApplicationReport:
    """One application."""
    return pb.ApplicationReport(
        app_id=report.app_id,
        name=report.name,
        user=report.user,
        queue=report.queue,
        priority=report.priority,
        state=report.state,
        final_status=report.final_status,
        progress=report.progress,
        attempt_id=report.attempt_id,
        master_node=report.master_node,
        submitted_s=report.submitted_s,
        started_s=report.started_s,
        finished_s=report.finished_s,
        tasks=report.tasks,
        finished_tasks=report.finished_tasks,
        running_containers=report.running_containers,
        pending_containers=report.pending_containers,
        allocated=encode_amounts(report.allocated),
        diagnostics=report.diagnostics,
        stages=[_encode_stage(stage) for stage in report.stages],
        cluster_ts=report.cluster_ts,
        held_s=encode_amounts(report.held_s),
        kind=report.kind,
        tags=report.tags,
        tracking_url=report.tracking_url,
        master_address=report.master_address,
        preempted_containers=report.preempted_containers,
        preempted=encode_amounts(report.preempted),
        expires_s=report.expires_s,
        max_attempts=report.max_attempts,
    )


def decode_application(item: pb.ApplicationReport) -> ApplicationReport:
    """One application."""
    return ApplicationReport(
        app_id=item.app_id,
        name=item.name,
        user=item.user,
        queue=item.queue,
        priority=item.priority,
        state=item.state,
        final_status=item.final_status,
        progress=item.progress,
        attempt_id=item.attempt_id,
        master_node=item.master_node,
        submitted_s=item.submitted_s,
        started_s=item.started_s,
        finished_s=item.finished_s,
        tasks=item.tasks,
        finished_tasks=item.finished_tasks,
        running_containers=item.running_containers,
        pending_containers=item.pending_containers,
        allocated=decode_amounts(item.allocated),
        diagnostics=item.diagnostics,
        stages=tuple(_decode_stage(stage) for stage in item.stages),
        cluster_ts=item.cluster_ts,
        held_s=decode_amounts(item.held_s),
        kind=item.kind,
        tags=tuple(item.tags),
        tracking_url=item.tracking_url,
        master_address=item.master_address,
        preempted_containers=item.preempted_containers,
        preempted=decode_amounts(item.preempted),
        expires_s=item.expires_s,
        max_attempts=item.max_attempts,
    )


def encode_node(report: NodeReport) -> pb.NodeReport:
    """One node."""
    return pb.NodeReport(
        node_id=report.node_id,
        address=report.address,
        rack=report.rack,
        labels=report.labels,
        state=report.state,
        capacity=encode_amounts(report.capacity),
        allocated=encode_amounts(report.allocated),
        use=encode_amounts(report.use),
        containers=report.containers,
        last_heartbeat_s=report.last_heartbeat_s,
        health_report=report.health_report,
        lacking=report.lacking,
    )


def decode_node(item: pb.NodeReport) -> NodeReport:
    """One node."""
    return NodeReport(
        item.node_id,
        item.address,
        item.rack,
        tuple(item.labels),
        item.state,
        decode_amounts(item.capacity),
        decode_amounts(item.allocated),
        decode_amounts(item.use),
        item.containers,
        item.last_heartbeat_s,
        health_report=item.health_report,
        lacking=item.lacking,
    )


def encode_queue(report: QueueReport) -> pb.QueueReport:
    """A queue with those below it."""
    return pb.QueueReport(
        name=report.name,
        capacity=report.capacity,
        max_capacity=report.max_capacity,
        used=report.used,
        state=report.state,
        running_apps=report.running_apps,
        pending_apps=report.pending_apps,
        allocated=encode_amounts(report.allocated),
        pending_containers=report.pending_containers,
        deficit=report.deficit,
        children=[encode_queue(child) for child in report.children],
        max_applications=report.max_applications,
        max_am_share=report.max_am_share,
    )


def decode_queue(item: pb.QueueReport) -> QueueReport:
    """A queue with those below it."""
    return QueueReport(
        item.name,
        item.capacity,
        item.max_capacity,
        item.used,
        item.state,
        item.running_apps,
        item.pending_apps,
        decode_amounts(item.allocated),
        item.pending_containers,
        item.deficit,
        tuple(decode_queue(child) for child in item.children),
        item.max_applications,
        item.max_am_share,
    )


def encode_manager(report: ManagerReport) -> pb.ManagerReport:
    """How a manager stands to the others."""
    return pb.ManagerReport(
        address=report.address,
        standing=report.standing,
        leader=report.leader,
        since_s=report.since_s,
        reason=report.reason,
        store=report.store,
        life=report.life,
    )


def decode_manager(item: pb.ManagerReport) -> ManagerReport:
    """How a manager stands to the others."""
    return ManagerReport(
        item.address, item.standing, item.leader, item.since_s, item.reason, item.store, item.life
    )


def encode_metrics(metrics: ClusterMetrics) -> pb.ClusterMetrics:
    """Counts over the whole cluster."""
    return pb.ClusterMetrics(
        scheduler=metrics.scheduler,
        started_s=metrics.started_s,
        now_s=metrics.now_s,
        nodes=_encode_counts(metrics.nodes),
        apps=_encode_counts(metrics.apps),
        capacity=encode_amounts(metrics.capacity),
        allocated=encode_amounts(metrics.allocated),
        containers_running=metrics.containers_running,
        containers_pending=metrics.containers_pending,
        cluster_ts=metrics.cluster_ts,
        use=encode_amounts(metrics.use),
    )


def decode_metrics(item: pb.ClusterMetrics) -> ClusterMetrics:
    """Counts over the whole cluster."""
    return ClusterMetrics(
        item.scheduler,
        item.started_s,
        item.now_s,
        _decode_counts(item.nodes),
        _decode_counts(item.apps),
        decode_amounts(item.capacity),
        decode_amounts(item.allocated),
        item.containers_running,
        item.containers_pending,
        item.cluster_ts,
        decode_amounts(item.use),
    )


def encode_explanation(explanation: Explanation) -> pb.Explanation:
    """Why stages are pending."""
    return pb.Explanation(
        app_id=explanation.app_id,
        state=explanation.state,
        text=explanation.text,
        stages=[
            pb.StageExplanation(
                stage=stage.stage,
                pending=stage.pending,
                reasons=_encode_counts(stage.reasons),
                altruistic=stage.altruistic,
            )
            for stage in explanation.stages
        ],
    )


def decode_explanation(item: pb.Explanation) -> Explanation:
    """Why stages are pending."""
    return Explanation(
        item.app_id,
        item.state,
        item.text,
        tuple(
            StageExplanation(
                stage.stage, stage.pending, _decode_counts(stage.reasons), stage.altruistic
            )
            for stage in item.stages
        ),
    )


def encode_container(report: ContainerReport) -> pb.ContainerReport:
    """One container of an application."""
    return pb.ContainerReport(
        container_id=report.container_id,
        node_id=report.node_id,
        stage=report.stage,
        index=report.index,
        attempt=report.attempt,
        state=report.state,
        started_s=report.started_s,
        finished_s=report.finished_s,
        node_address=report.node_address,
        exit_code=report.exit_code,
        run_s=report.run_s,
        message=report.message,
    )


def decode_container(item: pb.ContainerReport) -> ContainerReport:
    """One container of an application."""
    return ContainerReport(
        item.container_id,
        item.node_id,
        item.stage,
        item.index,
        item.attempt,
        item.state,
        item.started_s,
        item.finished_s,
        item.node_address,
        item.exit_code,
        item.run_s,
        item.message,
    )
