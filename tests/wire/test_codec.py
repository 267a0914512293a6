"""Every message means the same on both sides of the wire."""

import inspect
import json
from collections import OrderedDict
from dataclasses import is_dataclass
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testkit.values import WIDE, strategy
from weft.model import jobfile
from weft.model.errors import InputError
from weft.protocol import messages, requests
from weft.protocol.messages import (
    FromMaster,
    FromNode,
    NodeToMaster,
    QueryContainers,
    StartAnswered,
    StartContainers,
    StopContainers,
    TasksEnded,
    ToMaster,
    ToNode,
)
from weft.wire import codec, codec_job, containers_pb2, host_pb2, master_pb2, rules, tracker_pb2
from weft.wire.tokens import KeysTold, Shown, TimeTold

WAYS: list[tuple[Any, Any, Any, Any]] = [
    (FromNode, codec.encode_node_reports, codec.decode_node_reports, tracker_pb2.TrackerReports),
    (ToNode, codec.encode_node_orders, codec.decode_node_orders, tracker_pb2.TrackerOrders),
    (
        FromMaster,
        codec.encode_master_reports,
        codec.decode_master_reports,
        master_pb2.MasterReports,
    ),
    (ToMaster, codec.encode_master_orders, codec.decode_master_orders, master_pb2.MasterOrders),
    (
        StartContainers,
        lambda m: codec.encode_starts("me", m),
        codec.decode_starts,
        containers_pb2.StartContainersRequest,
    ),
    (
        StopContainers,
        lambda m: codec.encode_containers("me", m),
        codec.decode_stops,
        containers_pb2.ContainersRequest,
    ),
    (
        QueryContainers,
        lambda m: codec.encode_containers("me", m),
        codec.decode_queries,
        containers_pb2.ContainersRequest,
    ),
    (NodeToMaster, codec.encode_answers, codec.decode_answers, containers_pb2.ContainersResponse),
]
CASES = [
    (message, encode, decode, wire)
    for union, encode, decode, wire in WAYS
    for message in (get_args(union) or (union,))
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "encode", "decode", "wire"), CASES, ids=lambda v: getattr(v, "__name__", "")
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_batch_of_messages_comes_back(
    kind: Any, encode: Any, decode: Any, wire: Any, data: st.DataObject
) -> None:
    batch = data.draw(st.lists(strategy(kind), max_size=3))
    assert decode(wire.FromString(encode(batch).SerializeToString())) == batch


def test_ends_in_a_container_come_before_what_runs_there() -> None:
    """Else a task that has just ended is taken for one that was never begun."""
    both = [TasksEnded("n1", 257, (), (), 1.0), StartAnswered("n1", 257, ())]
    assert codec.decode_answers(codec.encode_answers(both)) == both


def test_every_message_has_a_way_over_the_wire() -> None:
    """A message of `weft.protocol.messages` is either carried itself or part of one that is."""
    carried = {kind for kind, *_ in CASES}
    known = {
        kind
        for _, kind in inspect.getmembers(messages, inspect.isclass)
        if kind.__module__ == messages.__name__ and is_dataclass(kind)
    }
    parts = {rule.item for rows in rules.RULES.values() for rule in rows.values()}
    assert known - parts == carried
    assert set(get_args(requests.ClientRequest)) == set(codec.CALLS)


@pytest.mark.parametrize("row", codec.CALLS.items(), ids=lambda row: row[0].__name__)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_request_comes_back(row: tuple[Any, codec.Call], data: st.DataObject) -> None:
    kind, call = row
    request = data.draw(strategy(kind))
    wire = call.encode_request(request).SerializeToString()
    assert call.decode_request(call.request_type.FromString(wire)) == request


ANSWERS: dict[Any, Any] = {
    requests.NewApplication: requests.ApplicationReserved,
    requests.SubmitApplication: requests.ApplicationAccepted,
    requests.FindSubmission: requests.ApplicationAccepted,
    requests.KillApplication: requests.Done,
    requests.MoveApplication: requests.Done,
    requests.SetPriority: requests.Done,
    requests.SetExpiry: requests.Done,
    requests.GetApplication: requests.ApplicationReport,
    requests.GetJob: requests.ApplicationJob,
    requests.ListApplications: requests.Page[requests.ApplicationReport],
    requests.ListNodes: requests.Page[requests.NodeReport],
    requests.DecommissionNode: requests.Done,
    requests.RecommissionNode: requests.Done,
    requests.ListQueues: requests.QueueReport,
    requests.UpdateNode: requests.Done,
    requests.SetQueues: requests.QueuesSet,
    requests.GetMetrics: requests.ClusterMetrics,
    requests.GetManager: requests.ManagerReport,
    requests.GetSettings: requests.ManagerSettings,
    requests.GetQueues: requests.Queues,
    requests.Explain: requests.Explanation,
    requests.ListContainers: requests.Page[requests.ContainerReport],
}


@pytest.mark.parametrize("row", codec.CALLS.items(), ids=lambda row: row[0].__name__)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_an_answer_comes_back(row: tuple[Any, codec.Call], data: st.DataObject) -> None:
    kind, call = row
    answer = data.draw(strategy(ANSWERS[kind]))
    wire = call.encode_answer(answer).SerializeToString()
    assert call.decode_answer(call.answer_type.FromString(wire)) == answer


@given(st.lists(strategy(messages.MasterLaunch), max_size=3), st.lists(WIDE, max_size=3))
def test_orders_to_an_am_host_come_back(
    launch: list[messages.MasterLaunch], kill: list[int]
) -> None:
    wire = codec.encode_launches(launch, kill, [b"t1", b"t2"]).SerializeToString()
    back = codec.decode_launches(host_pb2.HostOrders.FromString(wire))
    assert back == (launch, kill, [b"t1", b"t2"])


@pytest.mark.parametrize("way", WAYS[:4], ids=lambda way: way[3].__name__)
def test_tokens_and_keys_come_before_the_messages(way: Any) -> None:
    _, encode, decode, wire = way
    given: list[Any] = [Shown((b"one", b"two"))]
    if wire is tracker_pb2.TrackerOrders:
        sets = [("n1", (3, 4)), ("n2", (3, 4)), ("n2", (4, 5)), ("n2", (1,))]
        given = [TimeTold(7.5), *given]
        given += [KeysTold(node, tuple((n, b"secret") for n in told)) for node, told in sets]
    assert decode(wire.FromString(encode(given).SerializeToString())) == given
    assert "secret" not in repr(given)


@given(st.lists(strategy(codec.MasterEnded), max_size=3))
def test_ends_in_an_am_host_come_back(ends: list[codec.MasterEnded]) -> None:
    wire = codec.encode_ends(ends).SerializeToString()
    assert codec.decode_ends(host_pb2.HostReports.FromString(wire)) == ends


@pytest.mark.parametrize(
    ("decode", "wire"),
    [(way[2], way[3]) for way in WAYS[:4]],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_an_item_that_says_nothing_is_refused(decode: Any, wire: Any) -> None:
    """A peer of another version is named as such; it never crashes a role."""
    batch = wire()
    batch.items.add()
    with pytest.raises(codec.CodecError, match="another version"):
        decode(batch)


def test_a_job_that_grows_beyond_the_limit_on_its_way_is_refused_where_it_comes_in(monkeypatch):
    monkeypatch.setattr(codec_job, "JOB_BYTES_MAX", 20_000)
    short = ",".join(["1e15"] * 2_000)  # 10 kB as a client says it, 38 kB as we do
    stage = f'{{"name":"a","tasks":2000,"duration_s":1,"actual_duration_s":[{short}]}}'
    with pytest.raises(InputError, match="MB of a job"):
        codec_job.decode_job(f'{{"name":"j","stages":[{stage}]}}'.encode())
    fits = stage.replace("1e15", "2")
    job = codec_job.decode_job(f'{{"name":"j","stages":[{fits}]}}'.encode())
    assert codec_job.decode_job(codec_job.encode_job(job)) == job


def test_of_large_jobs_that_came_the_newest_is_kept_encoded(monkeypatch):
    """Also of those that were refused after: whoever sends them would else fill the memory."""
    monkeypatch.setattr(codec_job, "_ENCODED_BYTES_MAX", 5_000)
    monkeypatch.setattr(codec_job, "_encoded", OrderedDict())
    stage = '{{"name":"{}","tasks":1,"duration_s":1,"command":["{}"]}}'
    for size in (10, 3_000, 3_000, 9_000):
        data = f'{{"name":"j","stages":[{stage.format("s", "x" * size)}]}}'.encode()
        codec_job.encode_job(codec_job.decode_job(data))
        assert sum(len(one) for _, one in codec_job._encoded.values()) < 10_000
    assert len(codec_job._encoded) == 1


def test_a_job_has_so_many_tasks_over_all_its_stages():
    rows = ",".join(f'{{"name":"s{i}","tasks":5000001,"duration_s":1}}' for i in range(2))
    with pytest.raises(InputError, match="stages: 10000002 tasks are more than the limit"):
        codec_job.decode_job(f'{{"name":"j","stages":[{rows}]}}'.encode())


def test_a_job_has_so_many_edges_that_its_report_fits_one_message(monkeypatch):
    monkeypatch.setattr(jobfile, "JOB_EDGES_MAX", 2_000)
    names = [f"s{i}" for i in range(70)]
    rows = [
        {"name": name, "tasks": 1, "duration_s": 1, "parents": names[:i]}
        for i, name in enumerate(names)
    ]
    with pytest.raises(InputError, match="stages: 2415 edges are more than the limit of 2000"):
        codec_job.decode_job(json.dumps({"name": "j", "stages": rows}).encode())
    codec_job.decode_job(json.dumps({"name": "j", "stages": rows[:60]}).encode())
