"""The search for faults, in short: no seed breaks a promise; what does is shrunk to its cause."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from am.ask.registry import ASKERS
from lab.commands.fuzz import Given, case_of, script_of
from rm import clients, queue_changes
from rm.nodes import silence
from sim.faults import Fault, FaultKind, Faults, faults_from_dict, faults_to_dict
from sim.fuzz import run, shrink
from sim.network import LinkSettings
from sim.swarm import case, swarm
from tools.plant_bugs import FAULTS_MAX, find
from weft.policies.presets import PRESETS
from weft.protocol.requests import SetQueues


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_seed_breaks_a_promise_whatever_the_scheduler(name: str) -> None:
    for seed in range(3):
        for pace in ("yarn", "prompt"):
            verdict = run(case(seed, name, pace))
            assert not verdict.problem, f"weft fuzz --seeds {seed} --preset {name} --pace {pace}"


@pytest.mark.slow
def test_every_asker_is_searched_also_one_of_no_preset() -> None:
    cases = [case(seed) for seed in range(300)]
    assert {one.asker or PRESETS[one.preset].asker for one in cases} == set(ASKERS)
    assert {one.asker for one in cases} == {"", "reuse"}


@pytest.mark.slow
def test_no_seed_breaks_a_promise_with_an_asker_of_no_preset() -> None:
    given = Given("tez_p90", "", "", "reuse")
    for seed in range(6):
        one = case_of(seed, *given)
        verdict = run(one)
        assert not verdict.problem, f"weft fuzz --seeds {seed} --preset tez_p90 --asker reuse"
        text = script_of(one, verdict)
        assert f"--seeds {seed} --preset tez_p90 --asker reuse --pace" in text
        again = case_of(seed, *given._replace(script=text))
        assert replace(again, faults=one.faults) == one
        assert faults_to_dict(again.faults) == faults_to_dict(one.faults)


@pytest.mark.slow
def test_no_seed_breaks_a_promise_of_members() -> None:
    for seed in range(8):
        assert not run(case(seed, members=2)).problem, f"weft fuzz --seeds {seed} --members 2"
    assert {one.members for one in map(case, range(60))} == {1, 2}


@pytest.mark.slow
def test_a_script_of_members_is_run_as_it_was_found() -> None:
    for seed in range(6):
        one = case(seed, members=2)
        verdict = run(one)
        again = case_of(seed, one.preset, "", script_of(one, verdict), one.asker)
        assert replace(again, prompt=one.prompt, faults=one.faults) == one
        assert faults_to_dict(again.faults) == faults_to_dict(one.faults)


@pytest.mark.slow
def test_a_change_of_guarantees_that_overtakes_an_operators_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: a member takes a change whatever tree it was made from."""
    found = queue_changes.set_queues

    def careless(books: Any, request: SetQueues) -> Any:
        return found(books, replace(request, base=""))

    monkeypatch.setitem(clients._HANDLERS, SetQueues, careless)
    assert "other queues than were set" in run(case(28, members=2)).problem


KEPT = sorted((Path(__file__).parent / "kept_faults").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_script_that_broke_a_promise_once_breaks_none(path: Path) -> None:
    """As `weft fuzz` printed it; its head says of which seed, and what was wrong."""
    text = path.read_text()
    head = yaml.safe_load(text)["fuzz"]
    one = case_of(head["seed"], head["preset"], head["pace"], text, head.get("asker", ""))
    assert not run(one).problem


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    assert run(case(5)) == run(case(5))
    assert run(case(5)) != run(case(6))


def test_a_script_is_read_as_it_was_written() -> None:
    import numpy as np

    names = ["n1", "n2", "n3"]
    for seed in range(50):
        faults = swarm(np.random.default_rng(seed), names, 2)
        text = yaml.safe_dump(faults_to_dict(faults))
        again = faults_from_dict(yaml.safe_load(text), names, 2)
        assert faults_to_dict(again) == faults_to_dict(faults)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [
        "an accepted job is not persisted",
        "a finished task is not persisted",
        "a doubled grant is taken for a new one",
    ],
)
def test_a_planted_bug_is_found_and_shrunk(bug: str) -> None:
    """`make fuzz-planted` does so with all of them."""
    found = find(bug, seeds_max=50)
    assert found is not None
    _, small, problem = found
    assert problem
    assert len(small.faults.script) <= FAULTS_MAX


@pytest.mark.slow
def test_what_breaks_a_rule_is_shrunk_to_the_faults_that_do_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: a node that is silent for too long is never given up."""
    monkeypatch.setattr(silence, "expire", lambda books: None)
    plain = case(3, "capacity", "yarn")
    script = (
        Fault(1.0, FaultKind.SLOW, ("n1",), for_s=5.0, speed=0.5),
        Fault(2.0, FaultKind.PAUSE, ("n2",), for_s=2.0),
        Fault(8.0, FaultKind.CRASH, tuple(s.node_id for s in plain.cluster.nodes)),
        Fault(9.0, FaultKind.PAUSE_MANAGER, for_s=1.0),
    )
    broken = replace(plain, faults=Faults(script, LinkSettings(loss=0.1), 0.01))
    verdict = run(broken)
    assert verdict.problem
    small = shrink(broken, verdict.kind, tries_max=40)
    assert [fault.kind for fault in small.faults.script] == [FaultKind.CRASH]
    assert small.faults.network == LinkSettings()
    assert small.faults.rare == 0.0
    assert run(small).kind == verdict.kind
