"""Client requests and answers to and from `proto/client.proto`; one row of CALLS per RPC.

Requests and answers have the fields of their messages (`weft.wire.schema`).
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
from weft.wire.schema import Codec, codec_of, page_of


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


_APPLICATIONS = page_of(Page, ApplicationReport, pb.ApplicationReports, pb.ApplicationReport)
_NODES = page_of(Page, NodeReport, pb.NodeReports, pb.NodeReport)
_CONTAINERS = page_of(Page, ContainerReport, pb.ContainerReports, pb.ContainerReport)


def _call(
    request: type,
    message: type[Message],
    answer: type | Codec,
    answer_message: type[Message],
) -> tuple[type, Call]:
    """Return a row: what is asked by which message, and what is answered; the RPC has its name."""
    there = codec_of(request, message)
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
        _call(GetJob, pb.GetJobRequest, ApplicationJob, pb.GetJobResponse),
        _call(ListApplications, pb.ListApplicationsRequest, _APPLICATIONS, pb.ApplicationReports),
        _call(ListNodes, pb.ListNodesRequest, _NODES, pb.NodeReports),
        _call(DecommissionNode, pb.DecommissionNodeRequest, Done, pb.Done),
        _call(RecommissionNode, pb.RecommissionNodeRequest, Done, pb.Done),
        _call(UpdateNode, pb.UpdateNodeRequest, Done, pb.Done),
        _call(ListQueues, words.Nothing, QueueReport, pb.QueueReport),
        _call(SetQueues, pb.SetQueuesRequest, QueuesSet, pb.QueuesSet),
        _call(GetMetrics, words.Nothing, ClusterMetrics, pb.ClusterMetrics),
        _call(GetManager, words.Nothing, ManagerReport, pb.ManagerReport),
        _call(GetSettings, words.Nothing, ManagerSettings, pb.ManagerSettings),
        _call(GetQueues, words.Nothing, Queues, pb.Queues),
        _call(Explain, pb.ExplainRequest, Explanation, pb.Explanation),
        _call(ListContainers, pb.ListContainersRequest, _CONTAINERS, pb.ContainerReports),
    )
)
