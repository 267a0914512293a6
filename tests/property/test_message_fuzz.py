"""A short run of the message fuzzer on each core; `make fuzz-messages` runs it for longer."""

import pytest

from rm.core import ResourceManager
from tools.message_fuzz import BEDS, FuzzError, ManagerBed, Tally, fuzz_core

SEEDS = range(1_000, 1_004)


@pytest.mark.slow
@pytest.mark.parametrize("core", BEDS)
def test_hostile_messages_leave_every_core_whole(core: str) -> None:
    tally = Tally()
    for seed in SEEDS:
        fuzz_core(core, seed, tally)
    assert tally.refused > tally.sent / 50, "too few break a rule"
    assert tally.refused < tally.sent / 2, "too few get through"
    assert all(tally.kinds.values())


def fuzz_many(seeds: int, tally: Tally) -> None:
    for seed in range(seeds):
        fuzz_core("manager", seed, tally)


def test_it_finds_a_gate_that_stands_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.wire.rules.problem_of", lambda *_: None)
    with pytest.raises(FuzzError, match="manager core, seed"):
        fuzz_many(60, Tally())


def test_it_finds_a_node_that_changes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = ResourceManager.handle

    def careless(self: ResourceManager, event: object, now: float) -> object:
        if getattr(event, "node_id", "") == "x1":
            self.books.ledger.nodes.w["held"][0] += 1.0
        return handle(self, event, now)

    monkeypatch.setattr(ResourceManager, "handle", careless)
    with pytest.raises(FuzzError, match=r"another node|books"):
        fuzz_many(20, Tally())


def test_a_bed_is_the_same_for_a_seed() -> None:
    def walk() -> list[int]:
        bed = ManagerBed(5, Tally())
        for _ in range(100):
            bed.step()
        return [bed.tally.refused, len(bed.core.books.holdings), bed.numbers]

    assert walk() == walk()
