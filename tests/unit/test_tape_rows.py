"""Whatever a core handles comes back from a tape bit by bit, and damage is told."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testkit.values import strategy
from weft.model.errors import WeftError
from weft.protocol.effects import ClientRequested, Note, PlanReady, Send, TimerFired
from weft.protocol.facts import Placed, PlacedRun
from weft.protocol.messages import (
    AskType,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    NodeHeartbeated,
    Outcome,
)
from weft.protocol.requests import READS, GetMetrics, KillApplication
from weft.tape.columns import TABLE_VALUES_MAX, Context, FloatColumn
from weft.tape.records import codec_of
from weft.tape.rows import (
    EVENTS,
    CoreAdded,
    CoreRemoved,
    Given,
    Handled,
    Placing,
    Row,
    TapeReader,
    TapeWriter,
    check_of,
    placed_of,
)
from weft.tape.streams import UNPACKED_VALUES_MAX, VALUES_PER_BYTE_MAX, Source, Streams, put_uint
from weft.tape.vectors import SumColumn

ANY = st.one_of([strategy(kind) for kind in EVENTS])
FLOATS = (
    st.floats()
    | st.floats(0, 1e6).map(lambda x: round(x, 3))
    | st.integers(0, 2**30).map(lambda ticks: ticks / 2**20)
)


def read(*blocks: bytes) -> list[Row]:
    reader = TapeReader()
    rows = [row for block in blocks for row in reader.rows(block)]
    return rows + list(reader.finish())


def kept(event: Any) -> bool:
    """Reads of clients are left out; of a plan a master takes its order and scores only."""
    if isinstance(event, ClientRequested):
        return type(event.request) not in READS
    return not isinstance(event, PlanReady)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["rm", "node:a", "am:7"]), ANY, FLOATS), max_size=10))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_every_event_comes_back(said: list[tuple[str, Any, float]]) -> None:
    """Names, numbers and vectors that came before are told in short, which must lose nothing."""
    writer = TapeWriter()
    for address in ("rm", "node:a", "am:7"):
        writer.add(address, {"kind": "any", "of": address})
    blocks = []
    for place, (address, event, now) in enumerate(said):
        writer.handled(address, event, now, [])
        if place % 3 == 0:
            blocks.append(writer.take())
    rows = [row for row in read(*blocks, writer.take()) if isinstance(row, Handled)]
    wanted = [(a, e, n) for a, e, n in said if kept(e) or isinstance(e, PlanReady)]
    assert len(rows) == len(wanted)
    for row, (address, event, now) in zip(rows, wanted, strict=True):
        assert (row.address, struct.pack("d", row.now)) == (address, struct.pack("d", now))
        if isinstance(event, PlanReady):
            plan, made = event.plan, row.event.plan
            assert (plan is None) == (made is None)
            if plan is not None:
                assert made.planner == plan.planner
                assert made.makespan_s == plan.makespan_s
                assert made.order.tolist() == plan.order.tolist()
                assert made.pri_score.tolist() == plan.pri_score.tolist()
        else:
            assert repr(row.event) == repr(event)


@given(st.lists(FLOATS, max_size=30))
@settings(deadline=None)
def test_floats_keep_every_bit(values: list[float]) -> None:
    writer, reader, out = codec_of(float), codec_of(float), bytearray()
    for value in values:
        writer.put(out, value)
    source = Source(bytes(out))
    found = [reader.get(source) for _ in values]
    same = [struct.pack("d", one) for one in values if not math.isnan(one)]
    assert [struct.pack("d", one) for one in found if not math.isnan(one)] == same
    assert source.at == len(out)


def test_tables_that_are_full_begin_anew_on_both_sides() -> None:
    writer, reader, out = codec_of(str), codec_of(str), bytearray()
    names = [f"n{number % (TABLE_VALUES_MAX + 3)}" for number in range(3 * TABLE_VALUES_MAX)]
    for name in names:
        writer.put(out, name)
    source = Source(bytes(out))
    assert [reader.get(source) for _ in names] == names


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(0, 40),
            st.integers(1, 9),
            st.integers(0, 1),
            st.sampled_from([0.0, -0.0, 1.5]),
        ),
        max_size=8,
    )
)
@settings(deadline=None, max_examples=60)
def test_ends_of_runs_of_containers_come_back(runs: list[tuple[int, int, int, float]]) -> None:
    """Some are told as runs, some again before they were heard, some again but for a bit."""
    writer, said = TapeWriter(), []
    writer.add("am:1", {})
    for first, count, step, run_s in runs:
        ended = tuple(
            ContainerEnd(first + i, Outcome.SUCCEEDED, 0, 1, 7 + i * step, 0, run_s)
            for i in range(count)
        )
        for some in (ended, said[-1][::-1] + ended if said else ended):
            said.append(some)
            writer.handled("am:1", ContainersGranted(257, 1, ended=some), 1.0, [])
    rows = [row for row in read(writer.take()) if isinstance(row, Handled)]
    assert [repr(row.event.ended) for row in rows] == [repr(some) for some in said]


@pytest.mark.slow
@given(
    st.lists(
        FLOATS
        | st.integers(1, 400).flatmap(
            lambda parts: st.integers(0, parts).map(lambda number: number / parts)
        ),
        max_size=30,
    )
)
@settings(deadline=None, max_examples=60)
def test_parts_of_a_whole_keep_every_bit(said: list[float]) -> None:
    writer = TapeWriter()
    writer.add("rm", {})
    for number, value in enumerate(said):
        writer.handled("rm", ContainersAsked(257 + number % 2, number, progress=value), 1.0, [])
    rows = [row for row in read(writer.take()) if isinstance(row, Handled)]
    assert [repr(row.event.progress) for row in rows] == [repr(value) for value in said]


def test_the_progress_of_a_job_costs_a_byte_a_step() -> None:
    writer = TapeWriter()
    writer.add("rm", {})
    asked = [ContainersAsked(257, 1, progress=number / 137) for number in range(101)]
    writer.handled("rm", asked[1], 1.0, [])
    first = len(writer.more())
    for one in asked[2:]:
        writer.handled("rm", one, 1.0, [])
    rows = 99 * 5  # kind, core, time, sender, which fields
    assert len(writer.take()) <= first + rows + 99 + 8


@given(
    st.lists(
        st.lists(st.integers(0, 12), max_size=5)
        | st.tuples(st.integers(0, 2**40), st.integers(0, 60)).map(
            lambda run: list(range(run[0], run[0] + run[1]))
        ),
        max_size=8,
    )
)
@settings(deadline=None, max_examples=60)
def test_numbers_that_count_on_come_back(said: list[list[int]]) -> None:
    writer, reader, out = (
        codec_of(tuple[int, ...], "tasks"),
        codec_of(tuple[int, ...], "tasks"),
        (bytearray()),
    )
    for one in said:
        writer.put(out, tuple(one))
    source = Source(bytes(out))
    assert [list(reader.get(source)) for _ in said] == said
    assert source.at == len(out)


def test_a_run_of_ends_costs_no_more_than_one() -> None:
    def size(count: int) -> int:
        writer = TapeWriter()
        writer.add("am:1", {})
        ended = tuple(ContainerEnd(i, Outcome.SUCCEEDED, 0, 1, i) for i in range(count))
        writer.handled("am:1", ContainersGranted(257, 1, ended=ended), 1.0, [])
        return len(writer.take())

    assert size(1000) <= size(2) + 4


def test_a_run_of_placements_is_each_of_them() -> None:
    writer = TapeWriter()
    writer.add("rm", {})
    orders = [
        Note(PlacedRun(5, 3, "n1", 2, 1, (1.0,), AskType.DEFAULT, "root", ())),
        Note(Placed(9, "n2", 2, 1, (1.0,), AskType.DEFAULT, "root")),
    ]
    writer.handled("rm", TimerFired("match"), 1.0, orders)
    wanted = (*(Placing(i, "n1", 2, 1) for i in (5, 6, 7)), Placing(9, "n2", 2, 1))
    row = read(writer.take())[1]
    assert isinstance(row, Handled)
    assert row.placed == placed_of(orders) == wanted


def test_decisions_sums_and_errors_belong_to_their_event() -> None:
    writer = TapeWriter(check_every=2)
    placed = Placed(7 << 32 | 2, "n1", 3, 1, (1.0,), AskType.DEFAULT, "root.a")
    orders = [Note(placed), Send("am:7", "x")]
    writer.add("rm", {"kind": "any"})
    writer.given("rm", "key", {"a": 1.5})
    writer.handled("rm", TimerFired("match"), 1.0, orders)
    writer.handled("rm", ClientRequested("1", GetMetrics()), 1.5, orders)
    writer.handled("rm", ClientRequested("2", KillApplication(3, "why")), 2.0, orders)
    writer.failed("rm", TimerFired(("lifetime", 4)), 3.0, "ValueError: x")
    writer.remove("rm")
    placing = (Placing(7 << 32 | 2, "n1", 3, 1),)
    assert read(writer.take()) == [
        CoreAdded("rm", {"kind": "any"}),
        Given("rm", "key", {"a": 1.5}),
        Handled("rm", TimerFired("match"), 1.0, placing, check_of(orders)),
        Handled("rm", ClientRequested("2", KillApplication(3, "why")), 2.0, placing),
        Handled("rm", TimerFired(("lifetime", 4)), 3.0, failed="ValueError: x"),
        CoreRemoved("rm"),
    ]


def test_a_block_that_was_cut_off_is_left_out_and_damage_is_told() -> None:
    writer = TapeWriter()
    writer.add("rm", {})
    writer.handled("rm", NodeHeartbeated("n1", 5), 1.0, [])
    first = writer.take()
    writer.handled("rm", ContainersAsked(257, 1), 2.0, [])
    second = writer.take()
    assert len(read(first, second[:-1])) == 2
    assert len(read(first[:3], first[3:] + second)) == 3
    broken = bytearray(first + second)
    broken[len(first) + 4] = 240  # a row of no kind
    with pytest.raises(WeftError, match="the tape is damaged"):
        read(bytes(broken))


@pytest.mark.slow
def test_a_list_without_end_takes_no_room() -> None:
    """A few bytes can tell of many placements, records and numbers; none may tell of all memory."""

    def refused(writer: TapeWriter) -> None:
        with pytest.raises(WeftError, match="run without end"):
            read(writer.take())

    writer = TapeWriter()
    writer.add("rm", {})
    writer.handled("rm", TimerFired("match"), 1.0, [])
    writer._placed([(1, 1 << 40, "n1", 1, 1), (1, -(1 << 40), "n1", 1, 1)])
    refused(writer)
    for column in (
        codec_of(tuple[ContainerEnd, ...], "ended", Context(Streams())),
        codec_of(tuple[Container, ...], "allocated", Context(Streams())),
        codec_of(tuple[int, ...], "tasks"),
    ):
        out = bytearray()
        put_uint(out, 1 << 40)
        with pytest.raises(ValueError, match="run without end"):
            column.get(Source(bytes(out)))
    # each of them small enough, together not: whoever reads may keep them
    column, out = codec_of(tuple[int, ...], "tasks"), bytearray()
    for _ in range(1000):
        column.put(out, tuple(range(UNPACKED_VALUES_MAX >> 8)))
    assert len(out) < 10_000
    source = Source(bytes(out))
    with pytest.raises(ValueError, match="run without end"):
        [column.get(source) for _ in range(1000)]
    source = Source(bytes(out))
    for number in range(1000):  # a long tape has more of them
        source.allowance.left += VALUES_PER_BYTE_MAX * (UNPACKED_VALUES_MAX >> 14)
        assert len(column.get(source)) == UNPACKED_VALUES_MAX >> 8, number


AMOUNTS = st.one_of(
    st.integers(-5000, 5000).map(lambda n: n / 1000.0),
    st.integers(0, 10**6).map(float),
    st.floats(width=64),
    st.sampled_from([0.0, -0.0, 0.1 + 0.2, 1e-13, 5e-324, 2.0**41]),
)


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(AMOUNTS, max_size=3)), max_size=20))
@settings(deadline=None, max_examples=80)
def test_sums_keep_every_bit(said: list[tuple[int, list[float]]]) -> None:
    writer, reader, out = Context(Streams()), Context(Streams()), bytearray()
    put, get = SumColumn(writer).put, SumColumn(reader).get
    for sender, value in said:
        writer.sender = sender
        put(out, tuple(value))
    source = Source(bytes(out))
    for sender, value in said:
        reader.sender = sender
        assert repr(get(source)) == repr(tuple(value))
    assert source.at == len(out)


def test_what_starts_and_ends_again_costs_a_byte_and_what_it_rounds() -> None:
    """Amounts in use as a node sums them: by additions, each of which may round."""
    column, out, used = SumColumn(), bytearray(), [0.0, 0.0]
    demands = [(0.174, 188.0), (0.31, 2048.0), (0.1, 256.0)]
    rng = np.random.default_rng(3)
    running: list[tuple[float, float]] = []
    for _ in range(600):
        if running and rng.random() < 0.5:
            demand = running.pop(int(rng.integers(len(running))))
            used = [a - b for a, b in zip(used, demand, strict=True)]
        else:
            demand = demands[int(rng.integers(3))]
            running.append(demand)
            used = [a + b for a, b in zip(used, demand, strict=True)]
        column.put(out, tuple(used))
    assert len(out) < 600 * 3


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(1, 99_999), min_size=1, max_size=40), max_size=12))
@settings(deadline=None, max_examples=60)
def test_means_keep_every_bit_in_few_bytes(said: list[list[int]]) -> None:
    means = [sum(one / 1e4 for one in several) / len(several) for several in said]
    writer, reader, out = FloatColumn(), FloatColumn(), bytearray()
    for mean in means:
        writer.put(out, mean)
    source = Source(bytes(out))
    assert [repr(reader.get(source)) for _ in means] == [repr(mean) for mean in means]


def test_a_mean_takes_less_than_its_bits() -> None:
    column, out = FloatColumn(), bytearray()
    for count in range(3, 32):
        column.put(out, sum(0.7531 + 0.001 * i for i in range(count)) / count)
    assert len(out) < 29 * 7  # nine in full
