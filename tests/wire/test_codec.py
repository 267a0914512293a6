"""Every message means the same on both sides of the wire."""

import functools
import inspect
import json
import types
import typing
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft import jobfile, messages, requests
from weft.errors import InputError
from weft.job import Edge, EdgeKind, Job, Preference, Stage, TaskOverride, TaskPairs
from weft.messages import QueryContainers, StartContainers, StopContainers
from weft.resources import Kind, ResourceType, ResourceTypes
from weft.wire import codec, codec_job, containers_pb2, host_pb2, master_pb2, rules, tracker_pb2
from weft.wire.codec_containers import NodeAnswer
from weft.wire.codec_master import MasterOrder, MasterReport
from weft.wire.codec_tracker import NodeOrder, NodeReport
from weft.wire.tokens import KeyTold, Shown

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAME = st.text("abcdefgh_é", min_size=1, max_size=6)
AMOUNT = st.floats(0, 1e12, allow_nan=False)
WIDE = st.integers(0, 2**63 - 1)  # ids
SIGNED = st.integers(-(2**31), 2**31 - 1)
COUNT = st.integers(0, 2**31 - 1)
INTEGERS = {
    "stage": st.integers(-1, 2**31 - 1),
    "task": st.integers(-1, 2**31 - 1),
    "index": st.integers(-1, 2**31 - 1),
    "exit_code": SIGNED,
    "priority": SIGNED,
    "containers": COUNT,
}


def overrides(tasks: int) -> st.SearchStrategy[tuple[TaskOverride, ...]]:
    one = st.builds(
        TaskOverride,
        duration_s=st.none() | AMOUNT,
        demand=st.none() | st.dictionaries(NAME, AMOUNT, max_size=2),
        actual_duration_s=st.none() | AMOUNT,
        prefer=st.none() | st.builds(Preference, st.lists(NAME, max_size=2).map(tuple)),
        command=st.none() | st.lists(NAME, max_size=2).map(tuple),
    )
    return st.just(()) | st.lists(one, min_size=tasks, max_size=tasks).map(tuple)


@st.composite
def edges(draw: st.DrawFn, parent: Stage, tasks: int) -> Edge:
    kind = draw(st.sampled_from(EdgeKind))
    if kind is not EdgeKind.PAIRS:
        return Edge(parent.name, kind)
    pair = st.tuples(st.integers(0, parent.tasks - 1), st.integers(0, tasks - 1))
    return Edge(parent.name, kind, TaskPairs.of(draw(st.sets(pair, min_size=1, max_size=4))))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    stages = []
    for position in range(draw(st.integers(1, 3))):
        tasks = draw(st.integers(1, 3))
        parents = draw(st.sets(st.sampled_from(range(position)))) if position else set()
        stages.append(
            Stage(
                name=f"s{position}",
                tasks=tasks,
                duration_s=draw(AMOUNT),
                demand=draw(st.dictionaries(NAME, AMOUNT, max_size=2)),
                parents=tuple(draw(edges(stages[p], tasks)) for p in sorted(parents)),
                command=tuple(draw(st.lists(NAME, max_size=2))),
                gang=draw(st.booleans()),
                overrides=draw(overrides(tasks)),
            )
        )
    return Job(draw(NAME), tuple(stages), priority=draw(SIGNED), user=draw(NAME))


TYPES = st.lists(
    st.builds(ResourceType, NAME, st.sampled_from(list(Kind))),
    min_size=1, max_size=3, unique_by=lambda t: t.name,
).map(lambda items: ResourceTypes(tuple(items)))  # fmt: skip


@functools.cache
def strategy(kind: Any, name: str = "") -> st.SearchStrategy[Any]:
    """What a field of a type may hold, by its type and name."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Job:
        return jobs()
    if kind is ResourceTypes:
        return TYPES
    if origin in (types.UnionType, typing.Union):
        return st.one_of([strategy(a, name) for a in arguments])
    if origin is tuple and arguments[-1] is ...:
        return st.lists(strategy(arguments[0], name), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[COUNT if a is int else strategy(a, name) for a in arguments])
    if origin is requests.Page:
        return st.builds(
            requests.Page, st.lists(strategy(arguments[0]), max_size=3).map(tuple), TEXT
        )
    if origin is dict:
        return st.dictionaries(TEXT, strategy(arguments[1], name), max_size=3)
    if kind is int:
        return WIDE if name.endswith("_id") or name in WIDE_FIELDS else INTEGERS.get(name, COUNT)
    if kind is float:
        return st.floats(allow_nan=False)
    if kind is bool:
        return st.booleans()
    if kind is str:
        return TEXT
    if kind is type(None):
        return st.none()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if kind is requests.QueueReport and name == "children":
        return st.builds(requests.QueueReport, **own_fields(kind, {"children"}))
    return st.builds(kind, **own_fields(kind))


WIDE_FIELDS = {"acks", "releases", "stop", "cluster_ts", "seed", "response_id", "request_id"}


def own_fields(kind: Any, leave_out: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind)] if is_dataclass(kind) else kind._fields
    return {n: strategy(hints[n], n) for n in names if n not in leave_out}


WAYS: list[tuple[Any, Any, Any, Any]] = [
    (NodeReport, codec.encode_node_reports, codec.decode_node_reports, tracker_pb2.TrackerReports),
    (NodeOrder, codec.encode_node_orders, codec.decode_node_orders, tracker_pb2.TrackerOrders),
    (
        MasterReport,
        codec.encode_master_reports,
        codec.decode_master_reports,
        master_pb2.MasterReports,
    ),
    (MasterOrder, codec.encode_master_orders, codec.decode_master_orders, master_pb2.MasterOrders),
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
    (NodeAnswer, codec.encode_answers, codec.decode_answers, containers_pb2.ContainersResponse),
]
CASES = [
    (message, encode, decode, wire)
    for union, encode, decode, wire in WAYS
    for message in (get_args(union) or (union,))
]


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


def test_every_message_has_a_way_over_the_wire() -> None:
    """A message of `weft.messages` is either carried itself or part of one that is."""
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
    requests.GetMetrics: requests.ClusterMetrics,
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
    given = [Shown((b"one", b"two"))]
    if wire is tracker_pb2.TrackerOrders:
        given.append(KeyTold("n1", 3, b"secret"))
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


def test_a_job_has_so_many_tasks_over_all_its_stages():
    rows = ",".join(f'{{"name":"s{i}","tasks":5000001,"duration_s":1}}' for i in range(2))
    with pytest.raises(InputError, match="stages: 10000002 tasks are more than the limit"):
        codec_job.decode_job(f'{{"name":"j","stages":[{rows}]}}'.encode())


def test_a_job_has_so_many_edges_that_its_report_fits_one_message(monkeypatch):
    monkeypatch.setattr(jobfile, "EDGES_MAX", 2_000)
    names = [f"s{i}" for i in range(70)]
    rows = [
        {"name": name, "tasks": 1, "duration_s": 1, "parents": names[:i]}
        for i, name in enumerate(names)
    ]
    with pytest.raises(InputError, match="stages: 2415 edges are more than the limit of 2000"):
        codec_job.decode_job(json.dumps({"name": "j", "stages": rows}).encode())
    codec_job.decode_job(json.dumps({"name": "j", "stages": rows[:60]}).encode())
