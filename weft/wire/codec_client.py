"""Client requests and answers to and from `proto/client.proto`; one row of CALLS per RPC."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from weft.requests import (
    ApplicationAccepted,
    ApplicationJob,
    ApplicationReserved,
    DecommissionNode,
    Done,
    Explain,
    GetApplication,
    GetJob,
    GetManager,
    GetMetrics,
    KillApplication,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
    MoveApplication,
    NewApplication,
    Page,
    RecommissionNode,
    SetExpiry,
    SetPriority,
    SubmitApplication,
)
from weft.wire import client_pb2 as pb
from weft.wire import words_pb2 as words
from weft.wire.codec_job import decode_job, encode_job
from weft.wire.codec_reports import (
    decode_application,
    decode_container,
    decode_explanation,
    decode_manager,
    decode_metrics,
    decode_node,
    decode_queue,
    encode_application,
    encode_container,
    encode_explanation,
    encode_manager,
    encode_metrics,
    encode_node,
    encode_queue,
)


@dataclass(frozen=True, slots=True)
class Call:
    """How one RPC of ResourceManagerClient carries one request and its answer."""

    method: str  # the RPC's name
    request_type: type[Message]
    answer_type: type[Message]
    encode_request: Callable[[Any], Any]
    decode_request: Callable[[Any], Any]
    encode_answer: Callable[[Any], Any]
    decode_answer: Callable[[Any], Any]


def encode_accepted(answer: ApplicationAccepted) -> pb.SubmitApplicationResponse:
    """The answer to a submission."""
    return pb.SubmitApplicationResponse(app_id=answer.app_id, cluster_ts=answer.cluster_ts)


def decode_accepted(item: pb.SubmitApplicationResponse) -> ApplicationAccepted:
    """The answer to a submission."""
    return ApplicationAccepted(item.app_id, item.cluster_ts)


def _many(
    batch: Callable[..., Any], encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> tuple[Callable[[Page[Any]], Any], Callable[[Any], Page[Any]]]:
    """Both directions of a page of reports."""
    return (
        lambda page: batch(items=[encode(report) for report in page.items], next=page.next),
        lambda message: Page(tuple([decode(item) for item in message.items]), message.next),
    )


_DONE: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (
    lambda answer: pb.Done(state=answer.state),
    lambda item: Done(item.state),
)

CALLS: Mapping[type, Call] = {
    NewApplication: Call(
        "NewApplication",
        words.Nothing,
        pb.NewApplicationResponse,
        lambda r: words.Nothing(),
        lambda m: NewApplication(),
        lambda a: pb.NewApplicationResponse(app_id=a.app_id, cluster_ts=a.cluster_ts),
        lambda m: ApplicationReserved(m.app_id, m.cluster_ts),
    ),
    SubmitApplication: Call(
        "SubmitApplication",
        pb.SubmitApplicationRequest,
        pb.SubmitApplicationResponse,
        lambda r: pb.SubmitApplicationRequest(
            job_json=encode_job(r.job), submission_id=r.submission_id, app_id=r.app_id
        ),
        lambda m: SubmitApplication(decode_job(m.job_json), m.submission_id, m.app_id),
        encode_accepted,
        decode_accepted,
    ),
    KillApplication: Call(
        "KillApplication",
        pb.KillApplicationRequest,
        pb.Done,
        lambda r: pb.KillApplicationRequest(app_id=r.app_id, diagnostics=r.diagnostics),
        lambda m: KillApplication(m.app_id, m.diagnostics),
        *_DONE,
    ),
    MoveApplication: Call(
        "MoveApplication",
        pb.MoveApplicationRequest,
        pb.Done,
        lambda r: pb.MoveApplicationRequest(app_id=r.app_id, queue=r.queue),
        lambda m: MoveApplication(m.app_id, m.queue),
        *_DONE,
    ),
    SetPriority: Call(
        "SetPriority",
        pb.SetPriorityRequest,
        pb.Done,
        lambda r: pb.SetPriorityRequest(app_id=r.app_id, priority=r.priority),
        lambda m: SetPriority(m.app_id, m.priority),
        *_DONE,
    ),
    SetExpiry: Call(
        "SetExpiry",
        pb.SetExpiryRequest,
        pb.Done,
        lambda r: pb.SetExpiryRequest(app_id=r.app_id, expires_s=r.expires_s),
        lambda m: SetExpiry(m.app_id, m.expires_s),
        *_DONE,
    ),
    GetApplication: Call(
        "GetApplication",
        pb.GetApplicationRequest,
        pb.ApplicationReport,
        lambda r: pb.GetApplicationRequest(app_id=r.app_id),
        lambda m: GetApplication(m.app_id),
        encode_application,
        decode_application,
    ),
    GetJob: Call(
        "GetJob",
        pb.GetJobRequest,
        pb.GetJobResponse,
        lambda r: pb.GetJobRequest(app_id=r.app_id),
        lambda m: GetJob(m.app_id),
        lambda a: pb.GetJobResponse(job_json=encode_job(a.job)),
        lambda m: ApplicationJob(decode_job(m.job_json)),
    ),
    ListApplications: Call(
        "ListApplications",
        pb.ListApplicationsRequest,
        pb.ApplicationReports,
        lambda r: pb.ListApplicationsRequest(
            states=r.states, queue=r.queue, user=r.user, limit=r.limit, page=r.page
        ),
        lambda m: ListApplications(tuple(m.states), m.queue, m.user, m.limit, m.page),
        *_many(pb.ApplicationReports, encode_application, decode_application),
    ),
    ListNodes: Call(
        "ListNodes",
        pb.ListNodesRequest,
        pb.NodeReports,
        lambda r: pb.ListNodesRequest(states=r.states, limit=r.limit, page=r.page),
        lambda m: ListNodes(tuple(m.states), m.limit, m.page),
        *_many(pb.NodeReports, encode_node, decode_node),
    ),
    DecommissionNode: Call(
        "DecommissionNode",
        pb.DecommissionNodeRequest,
        pb.Done,
        lambda r: pb.DecommissionNodeRequest(node_id=r.node_id, timeout_s=r.timeout_s),
        lambda m: DecommissionNode(m.node_id, m.timeout_s),
        *_DONE,
    ),
    RecommissionNode: Call(
        "RecommissionNode",
        pb.RecommissionNodeRequest,
        pb.Done,
        lambda r: pb.RecommissionNodeRequest(node_id=r.node_id),
        lambda m: RecommissionNode(m.node_id),
        *_DONE,
    ),
    ListQueues: Call(
        "ListQueues",
        words.Nothing,
        pb.QueueReport,
        lambda r: words.Nothing(),
        lambda m: ListQueues(),
        encode_queue,
        decode_queue,
    ),
    GetMetrics: Call(
        "GetMetrics",
        words.Nothing,
        pb.ClusterMetrics,
        lambda r: words.Nothing(),
        lambda m: GetMetrics(),
        encode_metrics,
        decode_metrics,
    ),
    GetManager: Call(
        "GetManager",
        words.Nothing,
        pb.ManagerReport,
        lambda r: words.Nothing(),
        lambda m: GetManager(),
        encode_manager,
        decode_manager,
    ),
    Explain: Call(
        "Explain",
        pb.ExplainRequest,
        pb.Explanation,
        lambda r: pb.ExplainRequest(app_id=r.app_id),
        lambda m: Explain(m.app_id),
        encode_explanation,
        decode_explanation,
    ),
    ListContainers: Call(
        "ListContainers",
        pb.ListContainersRequest,
        pb.ContainerReports,
        lambda r: pb.ListContainersRequest(app_id=r.app_id, limit=r.limit, page=r.page),
        lambda m: ListContainers(m.app_id, m.limit, m.page),
        *_many(pb.ContainerReports, encode_container, decode_container),
    ),
}
