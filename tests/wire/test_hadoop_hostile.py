"""Hostile messages to the faces of YARN's wire: refused or harmless, and nothing odd goes on.

What a face passes on must be what the Resource Manager's own gate admits: a message that is refused
there is dropped whole, and its master would wait for ever.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.hadoop import FakeManager, Peer, foreign_master
from weft.client.api import RefusedError
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.protocol.requests import Refused, SubmitApplication
from weft.wire import rules
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import nodes, rpc, translate
from weft.yarn.clients import ClientFace
from weft.yarn.errors import HadoopError
from weft.yarn.store import Store
from weft.yarn.tokens import CONTAINER, MASTER, NODE, TokenKeeper

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
WORDS = st.text(max_size=12) | st.sampled_from(("*", "", "/r", "n1", "h1", "a" * 5_000))
FLOAT = st.floats(width=32)


def some(kind: Any, **fields: Any) -> Any:
    """Messages of a kind with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda found: kind(**found))


APP = some(pb.ApplicationId, id=INT, cluster_timestamp=LONG)
OWN = st.just(pb.AttemptId(application=pb.ApplicationId(id=3, cluster_timestamp=7), attempt=1))
NUMBER = some(
    pb.ContainerId,
    id=LONG,
    application=APP,
    attempt=OWN | some(pb.AttemptId, application=APP, attempt=INT),
)
AMOUNT = some(pb.ResourceAmount, key=WORDS | st.just("yarn.io/gpu"), value=LONG)
SIZE = some(pb.Resource, memory=LONG, virtual_cores=INT, amounts=st.lists(AMOUNT, max_size=2))
REQUEST = some(
    pb.ResourceRequest,
    priority=some(pb.Priority, priority=INT),
    resource_name=WORDS,
    capability=SIZE,
    num_containers=INT,
    relax_locality=st.booleans(),
    node_label_expression=WORDS,
    execution_type=some(pb.ExecutionType, execution_type=INT),
    allocation_request_id=LONG,
)
ALLOCATE = some(
    pb.Allocate,
    asks=st.lists(REQUEST, max_size=4),
    releases=st.lists(NUMBER, max_size=3),
    blacklist=some(
        pb.Blacklist, additions=st.lists(WORDS, max_size=3), removals=st.lists(WORDS, max_size=3)
    ),
    progress=FLOAT,
    tracking_url=WORDS,
)


class StrictManager(FakeManager):
    """A manager behind the gate that every message has to pass."""

    def send(self, message: Any) -> None:
        rules.check(message, 2)
        super().send(message)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.yarn.masters.FIRST_GRANTS_WAIT_S", 0.0)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    some(pb.Register, host=WORDS, rpc_port=INT, tracking_url=WORDS),
    st.lists(ALLOCATE, max_size=3),
    some(pb.Finish, diagnostics=WORDS, tracking_url=WORDS, final_status=INT),
)
def test_what_a_master_says_is_refused_or_passes_the_managers_gate(
    register: Any, calls: list[Any], finish: Any
) -> None:
    async def conversation() -> None:
        manager = StrictManager()
        master = foreign_master(manager, hosts={"h1": ("n1", "n2")})
        await master.register(register)
        said = 0
        for call in calls:
            call.response_id = said
            try:
                said = (await master.allocate(call)).response_id
            except HadoopError:
                continue
        await master.allocate(pb.Allocate(response_id=said))
        await master.finish(finish)

    asyncio.run(asyncio.wait_for(conversation(), 20))


class Cluster:
    """What the client face asks of its gateway, with a manager that takes every job."""

    cluster_ts, web, names = 7, "", ("vcores", "memory_mb")

    def __init__(self, folder: Any) -> None:
        self.client, self.store, self.keeper = self, Store(folder), TokenKeeper()
        self.taken: list[Any] = []

    async def submit(self, job: Any, submission_id: str, app: int) -> int:
        rules.check(SubmitApplication(job, submission_id, app), 2)
        assert job_from_dict(job_to_dict(job)) == job
        self.taken.append(job)
        return app

    async def application(self, app: int) -> Any:
        raise RefusedError(Refused("not_found", "app", "unknown"))

    def master_environment(self, app: int) -> tuple[tuple[str, str], ...]:
        return ()


CONTEXT = some(
    pb.SubmissionContext,
    application=APP,
    name=WORDS,
    queue=WORDS,
    type=WORDS,
    tags=st.lists(WORDS, max_size=3),
    priority=some(pb.Priority, priority=INT),
    resource=SIZE,
    max_attempts=INT,
    unmanaged=st.booleans(),
    node_label_expression=WORDS,
    master_requests=st.lists(REQUEST, max_size=2),
    master=some(
        pb.LaunchContext, tokens=st.binary(max_size=20), command=st.lists(WORDS, max_size=2)
    ),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(context=CONTEXT)
def test_a_submission_is_refused_or_a_job_that_a_file_could_hold(
    context: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster: Any = Cluster(tmp_path_factory.mktemp("store"))
    submit = ClientFace(cluster).protocol()["submitApplication"].handler
    caller = rpc.Caller(peer="here")
    caller.user = context.name
    try:
        asyncio.run(submit(caller, pb.Submission(context=context)))
    except HadoopError:
        assert not cluster.taken
        assert not list(cluster.store.applications()), "nothing is kept of what was refused"


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=30)), max_size=3),
    st.lists(NUMBER, max_size=3),
    st.booleans(),
)
def test_nothing_is_started_or_stopped_with_a_forged_token(
    tokens: list[tuple[bytes, bytes]], numbers: list[Any], borrowed: bool
) -> None:
    keeper, strangers = TokenKeeper(), TokenKeeper()
    done: list[Any] = []

    async def start(*what: Any) -> str:
        done.append(what)
        return ""

    async def look(number: int) -> None:
        return None

    face = nodes.NodeFace(
        "n1",
        keeper,
        None,
        start,
        done.append,
        look,
        lambda: ("vcores", "memory_mb"),
        lambda name: (),
        lambda: 7,
        {},
    )
    attempt = pb.AttemptId(application=pb.ApplicationId(id=3, cluster_timestamp=7), attempt=1)
    caller = rpc.Caller(peer="here")
    caller.kind = NODE
    caller.identifier = keeper.node(attempt, pb.NodeId(host="h", port=1), "ada").identifier
    request = pb.StartContainers()
    for identifier, password in tokens:
        token = pb.Token(identifier=identifier, password=password, kind=CONTAINER)
        if borrowed:  # well made, by somebody else
            named = pb.ContainerTokenIdentifier(
                container=pb.ContainerId(id=2, attempt=attempt), expiry_time=2**62
            )
            made = strangers.container(named)
            token.identifier, token.password = made.identifier, made.password
        request.items.add(token=token)

    async def conversation() -> None:
        calls = face.protocol()
        if tokens:
            with pytest.raises(HadoopError):
                await calls["startContainers"].handler(caller, request)
        await calls["stopContainers"].handler(caller, pb.ContainerIds(containers=numbers))
        await calls["getContainerStatuses"].handler(caller, pb.ContainerIds(containers=numbers))

    asyncio.run(conversation())
    own = translate.read_attempt(attempt)
    assert all(number >> 32 == own for order in done for number in order.containers)


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(("submitApplication", "getApplications", "getQueueInfo", "kill")),
    body=st.binary(max_size=120),
)
def test_bodies_of_no_meaning_are_answered_and_the_port_goes_on(method: str, body: bytes) -> None:
    async def conversation() -> None:
        protocol = ClientFace(object()).protocol()  # type: ignore[arg-type]
        server = rpc.Server({"P": protocol})
        port = await server.start("127.0.0.1", 0)
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port), "P")
        peer.hello(0, "ada")
        envelope = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=1, client_id=b"x" * 16)
        call = pb.MethodCall(method=method, protocol="P", version=1)
        data = Peer.delimited(envelope) + Peer.delimited(call) + body
        peer.writer.write(len(data).to_bytes(4, "big") + data)
        head, _ = await peer.answer()
        assert (head.call_id, head.status) == (1, 1)
        head, _ = await peer.exchange(pb.Empty(), pb.Empty, "listReservations")
        assert head.exception_class.endswith("UnsupportedOperationException")
        peer.writer.close()
        await server.stop()

    asyncio.run(asyncio.wait_for(conversation(), 20))


def test_a_token_of_one_kind_is_none_of_another() -> None:
    keeper = TokenKeeper()
    attempt = pb.AttemptId(application=pb.ApplicationId(id=3, cluster_timestamp=7), attempt=1)
    made = keeper.master(attempt)
    assert keeper.holds(MASTER, made.identifier, made.password)
    for kind in (NODE, CONTAINER):
        assert not keeper.holds(kind, made.identifier, made.password)
