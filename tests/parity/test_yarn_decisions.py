"""What YARN's Capacity Scheduler 3.5 granted, reserved and preempted, and Weft does too.

`make yarn-compare CASES=FOLDER` with `--keep FILE` of lab.yarn.compare recorded it from the real
one; a scenario is drawn from its seed again.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.yarn import documented, placed
from lab.yarn.cases import case_of
from lab.yarn.generate import scenario
from lab.yarn.weft_side import Loop
from rm.match.yarn import limits

FILE = Path(__file__).with_name("yarn.jsonl")
RECORDED = [json.loads(line) for line in FILE.read_text().splitlines()]


def decided(name: str) -> dict[str, list[list[Any]]]:
    kind, _, seed = name.rpartition("-")
    case = case_of(name, scenario(int(seed), kind))
    answer = Loop(case).run()
    kept = {
        "grants": answer.grants,
        "reserved_after": answer.reserved_after,
        # All of a round's happens at once, in any order.
        "preemptions": sorted(answer.preemptions),
    }
    return {key: [list(row) for row in rows] for key, rows in kept.items()}


@pytest.mark.parametrize("yarn", RECORDED, ids=lambda yarn: yarn["name"])
def test_weft_decides_as_yarn_did(yarn: dict[str, Any]) -> None:
    weft = decided(yarn["name"])
    assert weft["grants"] == yarn["grants"]
    assert weft["reserved_after"] == yarn["reserved_after"]
    assert weft["preemptions"] == sorted(yarn.get("preemptions", []))


HAND_MADE = [
    json.loads(line) for line in FILE.with_name("hand_made.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("kept", HAND_MADE, ids=lambda kept: kept["scenario"]["name"])
def test_weft_decides_as_yarn_did_where_no_seed_leads(kept: dict[str, Any]) -> None:
    """Amounts that are nearly equal or scaled down, labels, queues that are made, ends."""
    answer = Loop(case_of(kept["scenario"]["name"], kept["scenario"])).run()
    assert [list(row) for row in answer.grants] == kept["grants"]
    if "preemptions" in kept:
        assert sorted(map(list, answer.preemptions)) == sorted(kept["preemptions"])


def test_weft_does_what_yarn_did_where_its_documentation_predicts() -> None:
    kept = json.loads(Path(__file__).with_name("documented.json").read_text())
    assert {one.name: documented.by_weft(one) for one in documented.SCENARIOS} == kept


@pytest.mark.slow
def test_an_application_goes_to_the_queue_that_yarn_chose() -> None:
    """As `python -m lab.yarn.placed --keep FILE` recorded it; an empty text is a refusal."""
    kept = json.loads(Path(__file__).with_name("placed.json").read_text())
    for seed, theirs in kept.items():
        ours = placed.weft_queues(seed, placed.scenario(int(seed)))
        assert [queue for _, queue in ours] == theirs, seed


def test_a_rule_that_is_not_yarns_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same limit for all users, and some scenario comes out otherwise."""
    monkeypatch.setattr(limits, "limit_of", lambda rules, user, limit: limit)
    monkeypatch.setattr(limits, "user_limit", lambda rules, leaf, partition, **_: partition.total)
    assert any(decided(one["name"])["grants"] != one["grants"] for one in RECORDED)
