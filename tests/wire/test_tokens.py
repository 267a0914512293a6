"""Tokens: what was signed is true until it ends, and nothing else is; keys change while in use."""

import asyncio
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nm.process.tokens import NOT_HELD, NodeTokens
from rm.process.trust import open_keys
from weft.model.errors import InputError
from weft.protocol.messages import (
    NO_TOKEN,
    ContainerEnd,
    ContainersGranted,
    ItemAnswer,
    Outcome,
    QueryContainers,
    StartContainers,
    StopContainers,
    TaskLaunch,
    started_by,
)
from weft.runtime.process import Process
from weft.runtime.role_settings import HadoopSettings
from weft.wire import tokens
from weft.wire.token_store import Wallet
from weft.wire.tokens import (
    ACTIVATE_S,
    CONTAINER_S,
    KEYS_MAX,
    MAC_BYTES,
    Keys,
    Kind,
    Shown,
    TimeTold,
)
from weft.yarn.gateway import Gateway

C1, C2 = (1 << 40) | (1 << 32) | 2, (1 << 40) | (1 << 32) | 3


def keys(now_s: float = 0.0, rotate_s: float = 100.0) -> Keys:
    numbers = count(1)
    return Keys(now_s, lambda n: bytes([next(numbers)]) * n, rotate_s)


def test_a_token_says_what_was_signed_until_it_ends() -> None:
    ours = keys()
    token = ours.attempt(257, 10.0)
    assert ours.true(token, Kind.ATTEMPT, 10.0).number == 257
    assert ours.true(ours.node("n1", 10.0), Kind.NODE, 10.0).name == "n1"
    with pytest.raises(InputError, match="expired"):
        ours.true(token, Kind.ATTEMPT, 10.0 + ours.lasts_s())
    with pytest.raises(InputError, match="another kind"):
        ours.true(ours.container(C1, "n1", 10.0), Kind.NODE, 10.0)


@given(st.data())
def test_no_changed_token_is_true(data: st.DataObject) -> None:
    ours = keys()
    token = bytearray(ours.node("n1", 0.0))
    at = data.draw(st.integers(0, len(token) - 1))
    token[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InputError):
        ours.true(bytes(token), Kind.NODE, 1.0)


@given(st.binary(max_size=200))
def test_what_is_no_token_is_refused(text: bytes) -> None:
    with pytest.raises(InputError):
        keys().true(text, Kind.ATTEMPT, 1.0)


@given(st.lists(st.floats(0.0, 90.0), max_size=12), st.integers(0, 11))
def test_tokens_outlive_the_change_of_keys(waits: list[float], at: int) -> None:
    """Whenever keys turn, what was given before is true until it ends; so it is after a restart."""
    ours, now_s, given_at = keys(), 0.0, None
    token = b""
    for step, wait_s in enumerate(waits):
        now_s += wait_s
        ours.turn(now_s)
        told = {number for number, _ in ours.of_node("n1").keys}
        assert tokens.read(ours.node("n1", now_s)).key in told
        if step == at:
            token, given_at = ours.attempt(257, now_s), now_s
        if given_at is not None and now_s < given_at + ours.lasts_s():
            again = Keys(now_s, bytes, 100.0, json.loads(json.dumps(ours.data())))
            assert (
                ours.true(token, Kind.ATTEMPT, now_s).number
                == again.true(token, Kind.ATTEMPT, now_s).number
                == 257
            )


def test_keys_turn_on_after_a_clock_that_was_years_ahead() -> None:
    ours = keys(rotate_s=1_000.0)
    token = ours.attempt(257, 0.0)
    assert ours.turn(1e9)
    assert not ours.turn(10.0)
    assert ours.true(token, Kind.ATTEMPT, 10.0).number == 257
    ahead = tokens.read(ours.attempt(257, 1_500.0)).key
    assert ours.turn(1_500.0)
    assert tokens.read(ours.attempt(257, 1_600.0)).key == ahead + 1


def test_a_new_key_is_known_before_it_signs() -> None:
    ours = keys(rotate_s=1_000.0)
    assert not ours.turn(999.0)
    assert ours.turn(1_000.0)
    old, new = [number for number, _ in ours.of_node("n1").keys]
    assert new == old + 1
    assert tokens.read(ours.attempt(1, 1_001.0)).key == old
    assert tokens.read(ours.attempt(1, 1_000.0 + ACTIVATE_S)).key == new


def holder(held: Sequence[int], now_s: float, node: str = "n1") -> tuple[NodeTokens, Keys]:
    ours = keys()
    made = NodeTokens(lambda node, container: container in held, lambda: now_s)
    made.take(ours.of_node(node))
    return made, ours


def start(*containers: int) -> StartContainers:
    items = tuple(TaskLaunch(c, 0, 1, 0, 1.0, (1.0,)) for c in containers)
    return StartContainers(257, "n1", items, 9)


def test_a_node_starts_only_what_it_is_shown_a_token_of() -> None:
    node, ours = holder((), 5.0)
    refused: list[tuple[str, str]] = []
    good, answers = node.sift(
        [start(C1, C2)], [ours.container(C1, "n1", 0.0)], lambda *said: refused.append(said)
    )
    assert good == [start(C1)]
    assert [(item.container_id, item.stage) for item in answers[0].items] == [(C2, 0)]
    assert answers[0].items[0].error == f"{NO_TOKEN}: no token of container {C2} was shown"
    assert refused == [("StartContainers", f"no token of container {C2} was shown")]
    for token in (ours.container(C1, "n2", 0.0), ours.attempt(C1, 0.0), b"x" * 60):
        assert node.sift([start(C1)], [token], lambda *_: None)[0] == []
    late, ours = holder((), 1e9)
    assert late.sift([start(C1)], [ours.container(C1, "n1", 0.0)], lambda *_: None)[0] == []


def test_of_a_run_only_the_containers_start_whose_tokens_are_shown() -> None:
    node, ours = holder((), 100.0)
    item = TaskLaunch(C1, 0, 4, 0, 1.0, (1.0,), tasks=(4, 5, 6))
    whole = StartContainers(C1 >> 32, "n1", (item,))
    shown = [ours.container(number, "n1", 100.0) for number in started_by(item)]
    assert node.sift([whole], shown, lambda *_: None) == ([whole], [])
    (good,), (answer,) = node.sift([whole], [shown[0], shown[2]], lambda *_: None)
    assert [(one.container_id, one.task) for one in good.items] == [(C1, 4), (C1 + 2, 6)]
    assert [(one.container_id, one.task) for one in answer.items] == [(C1 + 1, 5)]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.booleans()), max_size=5),
    st.integers(0, 6),
    st.integers(1, 8),
    st.sets(st.integers(0, 14)),
    st.booleans(),
)
def test_tokens_of_runs_are_those_of_all_their_containers(
    granted: list[tuple[int, int, bool]], first: int, count: int, held: set[int], late: bool
) -> None:
    """Of an order starts just what true tokens cover, once each; expired ones where it runs.

    No container is granted twice, so that tokens of runs never overlap; those of single ones may.
    """
    now_s = CONTAINER_S + 1.0 if late else 1.0
    node, ours = holder([C1 + number for number in held], now_s)
    other = Keys(0.0, lambda n: b"o" * n)
    shown, covered, at = list[bytes](), {1}, 0
    for gap, length, true in granted:
        at += gap
        shown.append((ours if true else other).container(C1 + at, "n1", 0.0, count=length))
        covered |= set(range(at, at + length)) if true else set()
        at += length
    shown.append(ours.container(C1 + 1, "n1", 0.0))
    if late:
        covered &= held
    wanted = range(first, first + count)
    item = TaskLaunch(C1 + first, 0, first, 0, 1.0, (1.0,), tasks=tuple(wanted))
    good, answers = node.sift([StartContainers(C1 >> 32, "n1", (item,))], shown, lambda *_: None)
    begun = [number - C1 for order in good for one in order.items for number in started_by(one)]
    refused = [
        one.container_id - C1 + place
        for answer in answers
        for one in answer.items
        for place in range(one.count)
    ]
    assert sorted([*begun, *refused]) == list(wanted)
    assert set(begun) == covered & set(wanted)
    assert all(one.task == one.container_id - C1 for order in good for one in order.items)


def test_whoever_claims_a_run_of_any_length_costs_no_more() -> None:
    """Its count is what it says: nothing may be done by it before its signature is looked at."""
    node, ours = holder((), 1.0)
    forged = bytearray(ours.container(C1, "n1", 0.0, count=2))
    forged[-MAC_BYTES - 4 : -MAC_BYTES] = b"\xff\xff\xff\xff"
    item = TaskLaunch(C1, 0, 0, 0, 1.0, (1.0,), tasks=(0, 1))
    order = StartContainers(C1 >> 32, "n1", (item,))
    good, (answer,) = node.sift([order], [bytes(forged)], lambda *_: None)
    assert good == []
    assert [(one.container_id, one.count) for one in answer.items] == [(C1, 2)]
    wallet = Wallet()
    wallet.take(Shown((bytes(forged),)))
    assert wallet.of([C1]) == []


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The tokens whose signatures are worked out from now on."""
    seen: list[bytes] = []
    problem = tokens.container_problem

    def count(token: bytes, *more: Any, **named: Any) -> str:
        seen.append(token)
        return problem(token, *more, **named)

    monkeypatch.setattr(tokens, "container_problem", count)
    return seen


@pytest.mark.parametrize("apart", [0, 1])
def test_many_untrue_tokens_and_many_runs_do_not_multiply(
    apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of 200 kB kept a node manager busy for a minute: each run looked at each token."""
    node, ours = holder((), 1.0)
    other = Keys(0.0, lambda n: b"o" * n)
    shown = [other.container(C1 + 1 + n * apart, "n1", 0.0, count=2 + n) for n in range(2_000)]
    run = TaskLaunch(C1, 0, 0, 0, 1.0, (1.0,), tasks=tuple(range(2_002)))
    items = [replace(run, tasks=(0, 1)), run]
    order = StartContainers(C1 >> 32, "n1", tuple(items * 500))
    seen = looked_at(monkeypatch)
    good, (answer,) = node.sift([order], shown, lambda *_: None)
    assert (good, sum(one.count for one in answer.items)) == ([], 500 * 2_004)
    assert len(seen) < 10_000
    true = ours.container(C1, "n1", 0.0, count=2_002)
    assert node.sift([order], [true], lambda *_: None) == ([order], []), "one is enough for all"


def test_a_token_that_is_shown_often_is_looked_at_once_for_each_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, ours = holder((), 1.0)
    shown = [ours.container(C1, "n1", 0.0, count=4)] * 1_000
    order = StartContainers(
        C1 >> 32, "n1", (TaskLaunch(C1, 0, 0, 0, 1.0, (1.0,), tasks=(0, 1, 2)),)
    )
    seen = looked_at(monkeypatch)
    assert node.sift([order], shown, lambda *_: None) == ([order], [])
    assert len(seen) == 1


def test_a_run_is_of_the_attempt_that_it_was_granted_to() -> None:
    node, ours = holder((), 1.0)
    token = ours.container(C1, "n1", 0.0, count=3)
    for attempt, passes in ((C1 >> 32, True), ((C1 >> 32) + 1, False)):
        order = StartContainers(attempt, "n1", (TaskLaunch(C1 + 2, 0, 0, 0, 1.0, (1.0,)),))
        assert bool(node.sift([order], [token], lambda *_: None)[0]) is passes
    assert tokens.container_problem(token, C1 + 3, dict(ours.of_node("n1").keys), 1.0)
    assert tokens.container_problem(token, C1, dict(ours.of_node("n1").keys), 1.0, Kind.LOG)


def test_a_wallet_shows_the_token_of_a_run_once() -> None:
    ours, wallet = keys(), Wallet()
    wallet.take(Shown((ours.container(C1, "n1", 0.0, count=4),)))
    assert len(wallet.of([C1, C1 + 1, C1 + 3])) == 1
    wallet.lasts(C1 + 2)
    wallet.ended(C1, 4)
    assert wallet.of([C1, C1 + 1, C1 + 3]) == []
    assert len(wallet.of([C1 + 2])) == 1


def test_the_gateway_forgets_the_tokens_of_containers_that_ended(tmp_path: Path) -> None:
    """An application of another framework may be a session that lasts for days."""
    ours = keys()
    shown = [ours.container(C1 + place, "n1", 0.0) for place in range(3)]
    ended = ContainerEnd(C1, Outcome.SUCCEEDED), ContainerEnd(C1 + 2, Outcome.KILLED)

    async def main() -> list[bytes]:
        settings = HadoopSettings(dir=tmp_path)
        gateway = Gateway(Process(settings), settings)
        gateway._from_manager([Shown(tuple(shown))])
        gateway._from_manager([ContainersGranted(C1 >> 32, 1, ended=ended)])
        return gateway._wallet.of([C1, C1 + 1, C1 + 2])

    assert asyncio.run(main()) == [shown[1]]


def test_an_order_is_for_containers_of_its_own_application() -> None:
    """An earlier attempt's may be ordered by a later one that they were handed to."""
    node, ours = holder((C2,), 5.0)
    app, run = C1 >> 40, TaskLaunch(C1, 0, 4, 0, 1.0, (1.0,), tasks=(4, 5))
    for attempt, passes in ((app << 8 | 1, True), (app << 8 | 2, True), (app + 1 << 8 | 1, False)):
        shown = [ours.container(number, "n1", 0.0, attempt=attempt) for number in (C1, C2)]
        orders = [
            StartContainers(attempt, "n1", (run,)),
            StopContainers(attempt, "n1", (C2,)),
            QueryContainers(attempt, "n1", (C2,)),
        ]
        good, answers = node.sift(orders, shown, lambda *_: None)
        assert good == (orders if passes else [])
        items = [item for answer in answers for item in answer.items]
        errors = [item.error for item in items]
        assert sum(item.count for item in items) == (0 if passes else 4)
        assert all("not of the application" in error for error in errors)


@pytest.mark.parametrize("given", [1, 2])
@pytest.mark.parametrize("says", [1, 2, 3])
def test_a_master_orders_in_no_other_attempts_name(given: int, says: int) -> None:
    """Else it could take its containers over for a later attempt, which would not be heard."""
    node, ours = holder((C2,), 5.0)
    app, run = C1 >> 40, TaskLaunch(C1, 0, 4, 0, 1.0, (1.0,), tasks=(4, 5))
    shown = [ours.container(n, "n1", 0.0, attempt=app << 8 | given) for n in (C1, C2)]
    attempt = app << 8 | says
    orders = [
        StartContainers(attempt, "n1", (run,)),
        replace(start(C1, C2), attempt_id=attempt),
        StopContainers(attempt, "n1", (C2,)),
        QueryContainers(attempt, "n1", (C2,)),
    ]
    refused: list[str] = []
    good, answers = node.sift(orders, shown, lambda _, why: refused.append(why))
    assert bool(good) == (says == given)
    assert bool(refused) == (says != given)
    assert all(f"attempt {attempt if given == 1 else app << 8 | 2}" in why for why in refused)
    assert all(item.error.startswith(NO_TOKEN) for one in answers for item in one.items)


def test_a_container_that_runs_is_stopped_by_its_token_though_it_ended() -> None:
    node, ours = holder((C1,), 1e9)
    orders = [StopContainers(257, "n1", (C1,)), QueryContainers(257, "n1", (C1,))]
    token = ours.container(C1, "n1", 0.0)
    assert node.sift(orders, [token], lambda *_: None) == (orders, [])
    good, answers = node.sift(orders, [], lambda *_: None)
    assert good == []
    assert all(answer.items[0].error.startswith("refused") for answer in answers)


def test_what_no_node_holds_needs_no_token_and_is_not_touched() -> None:
    node, _ = holder((), 5.0)
    orders = [StopContainers(257, "n1", (C1,)), QueryContainers(257, "n1", (C1,))]
    good, answers = node.sift(orders, [], lambda *_: None)
    assert good == []
    assert [answer.items for answer in answers] == [
        (ItemAnswer(C1),),
        (ItemAnswer(C1, error=NOT_HELD),),
    ]


def test_a_wallet_forgets_with_the_last_master_of_an_application() -> None:
    ours, wallet = keys(), Wallet()
    wallet.take(Shown((ours.attempt(257, 0.0), ours.attempt(258, 0.0), b"none")))
    wallet.take(Shown((ours.container(C1, "n1", 0.0), ours.container(C2, "n1", 0.0))))
    assert len(wallet.of([C1, C2, 7 << 40])) == 2
    wallet.gone(257)
    assert len(wallet.of([C1])) == len(wallet.greeting()[0].tokens) == 1
    wallet.ended(C1)
    assert wallet.of([C1]) == []
    wallet.lasts(C2)
    wallet.ended(C2)
    assert len(wallet.of([C2])) == 1, "a task of a reusable container ended, not the container"
    wallet.gone(258)
    assert wallet.of([C2]) == wallet.greeting() == []


@pytest.mark.parametrize("turns", [0, 1, KEYS_MAX - 1, 40])
def test_a_node_that_stayed_up_takes_the_keys_of_a_manager_that_lost_its_own(turns: int) -> None:
    now_s = 1e6
    node = NodeTokens(lambda *_: False, lambda: now_s)
    lost = Keys(now_s, secrets.token_bytes, 100.0)
    node.take(lost.of_node("n1"))
    for _ in range(turns):
        now_s += 200.0
        assert lost.turn(now_s)
        node.take(lost.of_node("n1"))
    now_s += 60.0
    before = lost.container(C1, "n1", now_s)
    assert node.sift([start(C1)], [before], lambda *_: None) == ([start(C1)], [])
    fresh, _ = open_keys(None, 100.0)  # a manager without a state folder
    node.take(fresh.of_node("n1"))
    after = fresh.container(C1, "n1", now_s)
    assert node.sift([start(C1)], [after], lambda *_: None) == ([start(C1)], [])
    assert node.sift([start(C1)], [before], lambda *_: None)[0] == [], "the lost key holds no more"


@pytest.mark.parametrize("ahead_s", [-1e6, 700.0, 1e6])
def test_tokens_end_by_the_managers_clock(ahead_s: float) -> None:
    """However wrong the clock of the node's host is, once the manager said what time it is."""
    up_s = 50.0
    node = NodeTokens(lambda *_: False, lambda: 2e6 + ahead_s, lambda: up_s)
    ours = keys(2e6)
    node.take(ours.of_node("n1"))
    node.take(TimeTold(2e6))
    token = ours.container(C1, "n1", 2e6)
    for later_s, starts in ((0.0, True), (CONTAINER_S - 1.0, True), (CONTAINER_S + 1.0, False)):
        up_s = 50.0 + later_s
        good, _ = node.sift([start(C1)], [token], lambda *_: None)
        assert bool(good) == starts, later_s


def test_a_long_run_without_tokens_is_refused_as_one() -> None:
    node, ours = holder((), 5.0)
    run = TaskLaunch(C1, 3, 0, 0, 1.0, (1.0,), tasks=tuple(range(200_000)))
    order = StartContainers(257, "n1", (run,), 9)
    said: list[tuple[str, str]] = []
    good, (answer,) = node.sift([order], [], lambda *one: said.append(one))
    why = f"{NO_TOKEN}: no token of container {C1} was shown"
    assert (good, len(said)) == ([], 1)
    assert answer.items == (ItemAnswer(C1, 3, 0, why, 200_000),)
    good, (answer,) = node.sift([order], [ours.container(C1 + 7, "n1", 0.0)], lambda *_: None)
    assert [(one.container_id, one.task) for one in good[0].items] == [(C1 + 7, 7)]
    assert [(one.container_id, one.task, one.count) for one in answer.items] == [
        (C1, 0, 7),
        (C1 + 8, 8, 199_992),
    ]


ONE = {"number": 1, "from_s": 0.0, "secret": "00" * 32}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("null", "are not what this version wrote"),
        ('{"keys": []}', "expected 1 to 7"),
        ('{"keys": "ab"}', "are not what"),
        (json.dumps({"keys": [ONE | {"secret": ""}]}), r"keys\[0\].secret: has not 32 bytes"),
        (json.dumps({"keys": [ONE | {"from_s": float("nan")}]}), "from_s: is no time"),
        (json.dumps({"keys": [ONE | {"number": -1}]}), "number: is -1: expected 1"),
        (json.dumps({"keys": [ONE | {"number": 2**32}]}), "number: is 4294967296"),
        (json.dumps({"keys": [ONE, ONE]}), r"keys\[1\].number: is 1: expected 2"),
        ("", "cannot be read as keys"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused_in_one_line(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / tokens.FILE).write_text(text)
    with pytest.raises(InputError, match=why) as refused:
        open_keys(tmp_path, 100.0)
    assert str(tmp_path) in str(refused.value)
    assert (tmp_path / tokens.FILE).read_text() == text, "it is left for its owner to look at"
