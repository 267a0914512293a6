"""Client requests and answers to and from `proto/client.proto`; one row of CALLS per RPC.

Requests and answers have the fields of their messages (`weft.wire.plain`), but for jobs and
queues, which travel as JSON.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from weft.protocol.requests import (
    ApplicationAccepted,
    ApplicationJob,
    ApplicationReport,
    ApplicationReserved,
    ClusterMetrics,
    ContainerReport,
    DecommissionNode,
    Done,
    Explain,
    Explanation,
    FindSubmission,
    GetApplication,
    GetJob,
    GetManager,
    GetMetrics,
    GetQueues,
    GetSettings,
    KillApplication,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
    ManagerReport,
    ManagerSettings,
    MoveApplication,
    NewApplication,
    NodeReport,
    Page,
    QueueReport,
    Queues,
    QueuesSet,
    RecommissionNode,
    SetExpiry,
    SetPriority,
    SetQueues,
    SubmitApplication,
    UpdateNode,
)
from weft.wire import client_pb2 as pb
from weft.wire import words_pb2 as words
from weft.wire.codec_job import decode_job, decode_queues, encode_job, encode_queues
from weft.wire.plain import Codec, codec_of, page_of


@dataclass(frozen=True, slots=True)
class Call:
    """How one RPC of ResourceManagerClient carries one request and its answer.

    `method` is the RPC's name.
    """

    method: str
    request_type: type[Message]
    answer_type: type[Message]
    encode_request: Callable[[Any], Any]
    decode_request: Callable[[Any], Any]
    encode_answer: Callable[[Any], Any]
    decode_answer: Callable[[Any], Any]


_SUBMISSION = Codec(
    lambda request: pb.SubmitApplicationRequest(
        job_json=encode_job(request.job),
        submission_id=request.submission_id,
        app_id=request.app_id,
        fresh=request.fresh,
    ),
    lambda item: SubmitApplication(
        job=decode_job(item.job_json),
        submission_id=item.submission_id,
        app_id=item.app_id,
        fresh=item.fresh,
    ),
)
_QUEUES = Codec(
    lambda request: pb.SetQueuesRequest(
        queues_json=encode_queues(request.queues), dry_run=request.dry_run, base=request.base
    ),
    lambda item: SetQueues(decode_queues(item.queues_json), item.dry_run, item.base),
)
_TREE = Codec(
    lambda answer: pb.Queues(queues_json=encode_queues(answer.queues)),
    lambda item: Queues(queues=decode_queues(item.queues_json)),
)
_JOB = Codec(
    lambda answer: pb.GetJobResponse(job_json=encode_job(answer.job)),
    lambda item: ApplicationJob(job=decode_job(item.job_json)),
)
_APPLICATIONS = page_of(Page, ApplicationReport, pb.ApplicationReports, pb.ApplicationReport)
_NODES = page_of(Page, NodeReport, pb.NodeReports, pb.NodeReport)
_CONTAINERS = page_of(Page, ContainerReport, pb.ContainerReports, pb.ContainerReport)


def _call(
    request: type,
    message: type[Message],
    answer: type | Codec,
    answer_message: type[Message],
    asked: Codec | None = None,
) -> tuple[type, Call]:
    """Return a row: what is asked by which message, and what is answered; the RPC has its name."""
    there = asked or codec_of(request, message)
    back = answer if isinstance(answer, Codec) else codec_of(answer, answer_message)
    return request, Call(request.__name__, message, answer_message, *there, *back)


CALLS: Mapping[type, Call] = dict(
    (
        _call(NewApplication, words.Nothing, ApplicationReserved, pb.NewApplicationResponse),
        _call(
            SubmitApplication,
            pb.SubmitApplicationRequest,
            ApplicationAccepted,
            pb.SubmitApplicationResponse,
            _SUBMISSION,
        ),
        _call(
            FindSubmission,
            pb.FindSubmissionRequest,
            ApplicationAccepted,
            pb.SubmitApplicationResponse,
        ),
        _call(KillApplication, pb.KillApplicationRequest, Done, pb.Done),
        _call(MoveApplication, pb.MoveApplicationRequest, Done, pb.Done),
        _call(SetPriority, pb.SetPriorityRequest, Done, pb.Done),
        _call(SetExpiry, pb.SetExpiryRequest, Done, pb.Done),
        _call(GetApplication, pb.GetApplicationRequest, ApplicationReport, pb.ApplicationReport),
        _call(GetJob, pb.GetJobRequest, _JOB, pb.GetJobResponse),
        _call(ListApplications, pb.ListApplicationsRequest, _APPLICATIONS, pb.ApplicationReports),
        _call(ListNodes, pb.ListNodesRequest, _NODES, pb.NodeReports),
        _call(DecommissionNode, pb.DecommissionNodeRequest, Done, pb.Done),
        _call(RecommissionNode, pb.RecommissionNodeRequest, Done, pb.Done),
        _call(UpdateNode, pb.UpdateNodeRequest, Done, pb.Done),
        _call(ListQueues, words.Nothing, QueueReport, pb.QueueReport),
        _call(SetQueues, pb.SetQueuesRequest, QueuesSet, pb.QueuesSet, _QUEUES),
        _call(GetMetrics, words.Nothing, ClusterMetrics, pb.ClusterMetrics),
        _call(GetManager, words.Nothing, ManagerReport, pb.ManagerReport),
        _call(GetSettings, words.Nothing, ManagerSettings, pb.ManagerSettings),
        _call(GetQueues, words.Nothing, _TREE, pb.Queues),
        _call(Explain, pb.ExplainRequest, Explanation, pb.Explanation),
        _call(ListContainers, pb.ListContainersRequest, _CONTAINERS, pb.ContainerReports),
    )
)
