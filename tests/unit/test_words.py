"""The shared words hold their promises: ids, resources, edges and the outbox."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model import ids
from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind, Job, Stage, one_to_one_parents
from weft.model.resources import DEFAULT_RESOURCE_TYPES, ResourceType, ResourceTypes, read_amount
from weft.protocol.outbox import BATCH_MAX, Outbox


@given(st.integers(1, 2**20), st.integers(1, 255), st.integers(1, 2**32 - 1))
def test_a_packed_id_gives_its_parts_back(app: int, attempt: int, number: int) -> None:
    """Application, attempt and container number survive packing."""
    packed = ids.container_id(ids.attempt_id(app, attempt), number)
    assert ids.app_of_container(packed) == app
    assert ids.number_of_attempt(ids.attempt_of_container(packed)) == attempt
    assert ids.number_of_container(packed) == number


@given(st.integers(0, 10**13), st.integers(1, 10**6))
def test_an_application_string_is_read_back(cluster_ts: int, app: int) -> None:
    """What a listing prints is what a command takes."""
    assert ids.parse_app(ids.format_app(cluster_ts, app)) == app
    assert ids.parse_app(str(app)) == app


@pytest.mark.parametrize(
    "text", ["", "app_1", "application_x_1", "-3", "1.5", "9" * 5_000, "application_²_1"]
)
def test_a_bad_application_id_is_refused(text: str) -> None:
    """A clear error names the text."""
    with pytest.raises(InputError, match="application"):
        ids.parse_app(text)


def test_tasks_of_a_job_are_counted_once() -> None:
    """A manager asks for their number at each ask, and a job may have 10,000 stages with one."""

    class Stages(tuple[Stage, ...]):
        seen = 0

        def __iter__(self) -> Iterator[Stage]:
            type(self).seen += 1
            return super().__iter__()

    job = Job("j", Stages(Stage(f"{number}", 2, 1.0, {}) for number in range(3)))
    before = Stages.seen
    assert (job.task_count, job.task_count) == (6, 6)
    assert Stages.seen == before
    assert replace(job, stages=job.stages[:1]).task_count == 2


@given(st.integers(1, 60), st.integers(1, 60))
def test_one_to_one_blocks_leave_nobody_out(parents: int, children: int) -> None:
    """Every child has a parent, every parent has a child, and blocks are contiguous."""
    blocks = [one_to_one_parents(parents, children, c) for c in range(children)]
    assert all(len(b) >= 1 for b in blocks)
    assert {p for b in blocks for p in b} == set(range(parents))
    assert all(a.start <= b.start and a.stop <= b.stop for a, b in pairwise(blocks))


def test_an_unknown_resource_is_named() -> None:
    """The error says which name is unknown and which are known."""
    with pytest.raises(InputError, match=r"demand\.gpus: unknown resource.*vcores"):
        DEFAULT_RESOURCE_TYPES.vector({"gpus": 1.0})


def test_a_resource_declared_twice_is_refused() -> None:
    """Names are unique."""
    kind = DEFAULT_RESOURCE_TYPES.types[0].kind
    with pytest.raises(InputError, match="twice"):
        ResourceTypes((ResourceType("a", kind), ResourceType("a", kind)))


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "3", None])
def test_a_bad_number_is_refused(value: object) -> None:
    """Negative, not finite, or no number at all."""
    with pytest.raises(InputError, match=r"^here"):
        read_amount(value, "here")


def _stage(name: str, *parents: str) -> Stage:
    return Stage(name, 1, 1.0, {}, tuple(Edge(p) for p in parents))


def test_a_cycle_is_named() -> None:
    """The error lists the stages of the loop."""
    with pytest.raises(InputError, match=r"cycle: (a -> b -> a|b -> a -> b)"):
        Job("j", (_stage("a", "b"), _stage("b", "a"), _stage("c")))


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "at least one stage"),
        ((_stage("a"), _stage("a")), "'a' occurs twice"),
        ((_stage("a", "x"),), "unknown parent 'x'"),
        ((_stage("b"), _stage("a", "b", "b")), "'b' twice"),
        ((_stage("a", "a"),), "cycle"),
    ],
)
def test_a_broken_dag_is_refused(stages: tuple[Stage, ...], message: str) -> None:
    """Every structural fault has its own sentence."""
    with pytest.raises(InputError, match=message):
        Job("j", stages)


def test_topological_order_puts_parents_first() -> None:
    """Even when the file lists a child before its parent."""
    job = Job("j", (_stage("c", "a", "b"), _stage("b", "a"), _stage("a")))
    assert job.topological_order() == (2, 1, 0)
    assert list(job.parents_of(0)) == [(2, EdgeKind.ALL_TO_ALL), (1, EdgeKind.ALL_TO_ALL)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "take", "ack", "again"]), st.integers(0, 5)), max_size=60
    )
)
def test_an_outbox_delivers_the_newest_value_of_every_key(steps: list[tuple[str, int]]) -> None:
    """Whatever batches are lost, the receiver ends with the newest value of each key."""
    box: Outbox[int, tuple[int, int]] = Outbox(resend_after_s=1.0)
    newest: dict[int, int] = {}
    seen: dict[int, int] = {}
    sent: list[tuple[int, list[tuple[int, int]]]] = []
    now = 0.0
    for version, (step, key) in enumerate(steps):
        now += 0.4
        if step == "put":
            box.put(key, (key, version))
            newest[key] = version
        elif step == "take":
            sent.append(box.take(now))
        elif step == "again":
            box.again()
        elif sent:
            number, items = sent[key % len(sent)]
            for k, v in items:
                seen[k] = max(v, seen.get(k, -1))
            box.acknowledge((number,))
    while box.fresh or box.unacknowledged:
        now += 2.0
        number, items = box.take(now)
        for k, v in items:
            seen[k] = max(v, seen.get(k, -1))
        box.acknowledge((number,))
    assert seen == newest


def test_more_than_one_message_may_hold_goes_in_several() -> None:
    box: Outbox[int, int] = Outbox(resend_after_s=1.0)
    for key in range(2 * BATCH_MAX + 5):
        box.put(key, key)
    sizes, heard = [], []
    while box.fresh:
        number, items = box.take(0.0)
        box.acknowledge((number,))
        sizes.append(len(items))
        heard += items
    assert sizes == [BATCH_MAX, BATCH_MAX, 5]
    assert heard == list(range(2 * BATCH_MAX + 5))
