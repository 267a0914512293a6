"""The table of rules is whole, and each rule refuses what it is there for."""

import math
import random
from dataclasses import replace
from typing import Any, get_args

import pytest

from testkit import mutations
from weft.model.errors import InputError
from weft.protocol import messages, requests
from weft.protocol.messages import (
    Ask,
    AskType,
    AttemptFinished,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    ItemAnswer,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    RunningContainer,
    StartAnswered,
    StartContainers,
    TaskLaunch,
)
from weft.protocol.requests import ClientRequest, DecommissionNode, KillApplication
from weft.wire import codec, rules
from weft.wire.validator import Gate


def test_every_field_of_every_message_and_request_has_a_rule() -> None:
    told = [kind for kind in vars(messages).values() if isinstance(kind, type)]
    carried = [
        kind
        for kind in told
        if kind.__module__ == messages.__name__
        and (hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__"))
    ]
    assert len(carried) >= 25
    for kind in [*carried, *get_args(ClientRequest)]:
        assert set(rules.RULES[kind]) == set(rules.field_names(kind)), kind
    assert set(codec.CALLS) <= set(rules.RULES)
    assert requests.NewApplication in rules.RULES


C = 1 << 40 | 7
ASK = Ask(1, 2, (1.0, 2.0), 3.0, 0.5, AskType.DEFAULT, 0)
END = ContainerEnd(C, Outcome.SUCCEEDED)
LONG_END = replace(END, tasks=(0,) * 90_000)
LAUNCH = TaskLaunch(C, 0, 0, 0, 1.0, (1.0, 1.0))
INF, NAN = math.inf, math.nan


def asked(**fields: Any) -> ContainersAsked:
    return ContainersAsked(1, 1, asks=(ASK, replace(ASK, **fields)))


def granted(**fields: Any) -> ContainersGranted:
    return ContainersGranted(1, 1, **fields)


def node(**fields: Any) -> NodeRegistered:
    return NodeRegistered(
        **{"node_id": "n", "address": "", "rack": "r", "labels": (), "capacity": {"vcores": 1.0}}
        | fields
    )


def test_what_keeps_the_rules_passes() -> None:
    good: list[Any] = [
        asked(),
        asked(total=2**53, stage=-1, label="gpu", nodes=("n1",)),
        node(),
        node(running=(RunningContainer(C, (0.0, 1.0), ((0, 0, 1),)),), labels=("a", "b")),
        NodeHeartbeated("n", 1, use=(0.5, -1.0), ended=(END,)),
        NodeHeartbeated("n", 1, ended=(replace(END, stage=-1, task=-1, exit_code=-9),)),
        StartContainers(1, "n", (LAUNCH,)),
        KillApplication(1, "two\nlines"),
        DecommissionNode("n", -1.0),
    ]
    for message in good:
        rules.check(message, 2)
        rules.check(message, 0)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (asked(total=2**63), "asks[1].total"),
        (asked(total=-1), "asks[1].total"),
        (asked(demand=()), "asks[1].demand"),
        (asked(demand=(1.0,)), "asks[1].demand"),
        (asked(demand=(1.0,) * 5), "asks[1].demand"),
        (asked(demand=(-1e6, 1.0)), "asks[1].demand"),
        (asked(demand=(NAN, 1.0)), "asks[1].demand"),
        (asked(demand=(1.0, INF)), "asks[1].demand"),
        (asked(demand=(2.0**54, 1.0)), "asks[1].demand"),
        (asked(duration_s=1e308), "asks[1].duration_s"),
        (asked(pri_score=NAN), "asks[1].pri_score"),
        (asked(stage=-2), "asks[1].stage"),
        (asked(nodes=("n\n",)), "asks[1].nodes"),
        (asked(label="\x1b[2J"), "asks[1].label"),
        (asked(label="x" * 1025), "asks[1].label"),
        (ContainersAsked(0, 1), "attempt_id"),
        (ContainersAsked(2**31, 1), "attempt_id"),
        (ContainersAsked(1, 2**63), "request_id"),
        (ContainersAsked(1, 1, progress=1.5), "progress"),
        (ContainersAsked(1, 1, remaining_work=NAN), "remaining_work"),
        (ContainersAsked(1, 1, blacklist=("",)), "blacklist"),
        (ContainersAsked(1, 1, releases=(2**63,)), "releases"),
        (node(running=(RunningContainer(C, (7e6,) * 8, ()),)), "running[0].demand"),
        (node(running=(RunningContainer(C, (-1e9, 0.0), ()),)), "running[0].demand"),
        (node(running=(RunningContainer(C, (1.0, 0.0), ((-2, 0, 0),)),)), "running[0].tasks"),
        (node(capacity={"vcores": 0.0}), "capacity"),
        (node(capacity={}), "capacity"),
        (node(life=2**54), "life"),
        (node(labels=("l",) * 17), "labels"),
        (NodeHeartbeated("n", 1, use=(1.0,)), "use"),
        (NodeHeartbeated("n", 1, ended=(END, replace(END, run_s=NAN))), "ended[1].run_s"),
        (NodeHeartbeated("n", 1, ended=(replace(END, message="x" * 70_000),)), "ended[0].message"),
        (NodeHeartbeated("n", 1, ended=(LONG_END,) * 3), "ended"),
        (StartContainers(1, "n", (replace(LAUNCH, tasks=LONG_END.tasks),) * 3), "items"),
        (StartAnswered("n", 1, (ItemAnswer(C, 0, 0, count=80_000),) * 3), "items"),
        (granted(containers=(Container(C, "n", 1, 0, 80_000),) * 3), "containers"),
        (granted(ended=(LONG_END,) * 3), "ended"),
        (
            granted(ended=(replace(END, container_id=2**63 - 2, tasks=(0,) * 9),)),
            "ended[0].container_id",
        ),
        (StartContainers(1, "n", (replace(LAUNCH, duration_s=1e300),)), "items[0].duration_s"),
        (StartContainers(1, "n", (replace(LAUNCH, granted=(1.0,)),)), "items[0].granted"),
        (AttemptFinished(257, True, status="evil2"), "status"),
        (AttemptFinished(257, True, status="UNDEFINED"), "status"),
        (DecommissionNode("n", 1e308), "timeout_s"),
        (KillApplication(2**60), "app_id"),
    ],
)
def test_what_breaks_a_rule_is_named(message: Any, place: str) -> None:
    with pytest.raises(InputError) as caught:
        rules.check(message, 2)
    assert caught.value.place == place


def test_runs_of_as_many_as_a_list_may_hold_pass() -> None:
    assert rules.problem_of(NodeHeartbeated("n", 1, ended=(LONG_END,) * 2 + (END,) * 9), 2) is None


def test_a_gate_tells_like_refusals_once_and_counts_all() -> None:
    told: list[tuple[Any, ...]] = []
    counted: list[tuple[str, str]] = []
    now = [0.0]
    gate = Gate(lambda *what: told.append(what), lambda *what: counted.append(what), lambda: now[0])
    for _ in range(5):
        assert gate.sift([asked(), asked(stage=-2)], 2, "peer") == [asked()]
    now[0] = 60.0
    assert not gate.passes(asked(stage=-2), 2, "peer")
    assert counted == [("ContainersAsked", "asks[].stage")] * 6
    assert gate.refused == 6
    assert [(what[0], what[2], what[4]) for what in told] == [
        ("peer", "asks[1].stage", 0),
        ("peer", "asks[1].stage", 4),
    ]


@pytest.mark.parametrize("kind", rules.RULES, ids=lambda kind: kind.__name__)
def test_the_compiled_rules_say_what_the_rules_say_one_by_one(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole messages, broken ones, and those whose lists repeat an item that breaks a rule."""
    rng, pool = random.Random(3), mutations.Pool()
    compiled = rules._QUICK[kind]
    kept = refused = 0
    for turn in range(300):
        message = mutations.make(kind, rng, pool)
        if turn % 3:
            message = mutations.broken(message, rng, pool)
        for d in (0, len(pool.types), 3):
            passes = compiled(message, d)
            with monkeypatch.context() as patch:
                patch.setitem(rules._QUICK, kind, lambda *_: False)
                problem = rules.problem_of(message, d)
            if passes:
                assert problem is None, (message, problem)
                kept += 1
            refused += problem is not None
    assert kept
    assert refused or not any(rule.check for rule in rules.RULES[kind].values())


def test_a_value_that_follows_a_good_one_is_judged_for_itself() -> None:
    bad = replace(LAUNCH, demand=(1.0, -1.0))
    for items in ((LAUNCH, LAUNCH, bad), (bad, bad)):
        assert rules.problem_of(StartContainers(1, "n", items), 2) is not None
    assert rules.problem_of(StartContainers(1, "n", (LAUNCH, LAUNCH)), 2) is None
