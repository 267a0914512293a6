"""Worked examples of Carbyne's intra-job scheduler, and their jobs' completion under leftovers."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from am.ask.carbyne import Carbyne, Intra, schedule
from am.ask.remaining import Remaining, declared_s, shape_of
from am.settings import MasterSettings
from am.work import Work
from testkit.master import ATTEMPT, accepted
from weft.ids import container_id
from weft.job import Edge, Job, Stage
from weft.messages import Container
from weft.resources import Kind, ResourceType, ResourceTypes

FOLDER = Path(os.environ.get("WEFT_GOLDEN", "../shared/golden"))
CASES = [
    case
    for path in sorted(FOLDER.glob("*.json"))
    if (case := json.loads(path.read_text())).get("family", "").startswith("carbyne")
]
if not CASES:
    pytest.skip(f"no worked examples of Carbyne in {FOLDER}", allow_module_level=True)


def read_job(given: dict[str, Any]) -> Job:
    stages = tuple(
        Stage(
            s["name"], s["num_tasks"], s["duration"], s["demand"],
            tuple(Edge(p) for p in s.get("parents", ())),
        )
        for s in given["stages"]
    )  # fmt: skip
    return Job(given["name"], stages)


class Player:
    """One job of an example, played by hand."""

    def __init__(self, job: Job, types: ResourceTypes, total: float, share: float) -> None:
        answer = accepted(job, types=types, machines=(((total,), 1),), share=(share,))
        self.work = Work(
            ATTEMPT, MasterSettings(planner=""), Carbyne(), np.random.default_rng(0), answer
        )
        self.work.adopt(None)
        self.ends: list[tuple[float, Any]] = []
        self.finish_s = -1.0

    def intra(self, now: float, share: float) -> Intra:
        self.work.share = (share,)
        view = self.work._view()
        remaining = Remaining(shape_of(view), declared_s(view), view, now)
        return schedule(remaining, (share,), view.capacity, False)

    def start(self, lot_number: int, now: float, number: int) -> float:
        lot = self.work.progress.lots[lot_number]
        self.work.review = True
        self.work.progress.mark(lot)
        self.work.consult(now)
        row = next(r for r in lot.rows if r is not None and r.wanted)
        container = container_id(ATTEMPT, number)
        self.work.take((Container(container, "n", row.ask_id),), now)
        self.ends.append((now + lot.declared_of(0), container))
        return float(lot.demand[0])


def play(players: list[Player], total: float, strict: bool) -> list[float]:
    """Equal shares; must-start first, then leftovers by shortest remaining work."""
    now, number, free = 0.0, 1, total
    while any(p.finish_s < 0 for p in players):
        alive = [p for p in players if p.finish_s < 0]
        share = total / (len(players) if strict else len(alive))
        wanted: list[tuple[Player, int, int]] = []
        for p in alive:
            intra = p.intra(now, share)
            shape = shape_of(p.work._view())
            due = intra.ready & (intra.start <= 1e-9) if strict else intra.must
            for lot, count in enumerate(np.bincount(shape.kind[due], minlength=len(shape.need))):
                wanted.append((p, lot, int(count)))
        for p, lot, count in wanted:
            for _ in range(count):
                number += 1
                free -= p.start(lot, now, number)
        for p in sorted(alive, key=lambda p: p.work.progress.remaining_work):
            lots = sorted(p.work.progress.lots, key=lambda lot: -lot.demand[0])
            for lot in [] if strict else lots:
                while lot.ready and lot.demand[0] <= free + 1e-9:
                    number += 1
                    free -= p.start(lot.number, now, number)
        now = min(end for p in alive for end, _ in p.ends)
        for p in alive:
            for end, container in [e for e in p.ends if e[0] <= now + 1e-9]:
                p.ends.remove((end, container))
                held = p.work.launcher.held.pop(container)
                free += held.lot.demand[0]
                p.work.progress.finish(held.stage, held.task)
            if p.work.progress.done:
                p.finish_s = now
    return [p.finish_s for p in players]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_worked_example(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    tolerance = case["tolerance"].get("abs", 1e-6)
    types = ResourceTypes(tuple(ResourceType(n, Kind.RIGID) for n in given["capacity"]))
    total = next(iter(given["capacity"].values()))
    jobs = [read_job(job) for job in given["jobs"]]

    def players() -> list[Player]:
        shares = given["share"]
        return [Player(j, types, total, s * total) for j, s in zip(jobs, shares, strict=True)]

    for number, player in enumerate(players()):
        intra = player.intra(0.0, given["share"][number] * total)
        assert intra.t_k == pytest.approx(expected["T"][number], abs=tolerance)
        assert intra.leftover[0] == pytest.approx(expected["leftover"][number], abs=tolerance)
        shape = shape_of(player.work._view())
        musts = np.bincount(shape.stage[intra.must], minlength=len(player.work.job.stages))
        named = {
            stage.name: int(count)
            for stage, count in zip(player.work.job.stages, musts, strict=True)
            if count
        }
        assert named == expected["must_start_counts"][number]
    finish = play(players(), total, strict=False)
    assert finish == pytest.approx(expected["carbyne_jct"], abs=tolerance)
    assert np.mean(finish) == pytest.approx(expected["carbyne_avg"], abs=tolerance)
    alone = play(players(), total, strict=True)
    assert np.mean(alone) == pytest.approx(expected["strict_share_avg"], abs=tolerance)
