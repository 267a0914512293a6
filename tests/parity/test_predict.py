"""Predictions from what a manager tells: exact where nothing is left to chance, bands elsewhere."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.commands.prediction_book import CALIBRATION_PREDICTIONS_MIN, PredictionBook, stretched
from sim.cluster import Simulation
from sim.replay.client_view import AskedManager
from sim.replay.estimate_error import Ratios
from sim.replay.predict import Band, Drawn, Prediction, predict
from sim.replay.snapshot import Held, Learned, OpenApplication, State, read_state
from sim.settings import SimSettings
from testkit.builders import report
from tests.parity.test_tapes import CLUSTER
from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import preset
from weft.protocol.requests import ApplicationReport

DEMAND = {"vcores": 1.0, "memory_mb": 1024.0}


def job(number: int, factor: float = 1.0) -> Job:
    """24 vcores run two waves of the first stage; every task takes `factor` times its estimate."""
    first = Stage("map", 40, 6.0, DEMAND, actual_duration_s=6.0 * factor)
    second = Stage("reduce", 4, 5.0, DEMAND, (Edge("map"),), actual_duration_s=5.0 * factor)
    return Job(f"j{number}", (first, second), arrival_s=2.0 + number)


def stood(jobs: list[Job], settings: SimSettings, at_s: float) -> tuple[State, dict[int, float]]:
    """What the manager told at a time, and when its applications ended."""
    simulation = Simulation(CLUSTER, jobs, settings)
    simulation.go_on(at_s)
    state = read_state(AskedManager(simulation.manager, at_s))
    ends = {row.app: row.finish_s for row in simulation.run().jobs}
    return replace(state, now_s=at_s), ends


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prompt"), [("fifo", True), ("capacity", False), ("drf", True), ("graphene", True)]
)
def test_with_right_estimates_ends_are_met(name: str, prompt: bool) -> None:
    settings = SimSettings(preset(name), 1, prompt=prompt)
    state, ends = stood([job(number) for number in range(4)], settings, 13.3)
    apps = [one.report.app_id for one in state.apps]
    waiting = [one.report.app_id for one in state.apps if one.waits]
    assert len(apps) == 4
    assert bool(waiting) == (name != "drf"), "drf lets everybody begin"
    for one in predict(state, settings, apps, draws=10):
        left_s = ends[one.app] - state.now_s
        slack_s = 0.1 * left_s + (0.0 if prompt else 2.0)  # heartbeats' phases are not told
        assert one.end.usual_s - state.now_s == pytest.approx(left_s, abs=slack_s)
        assert one.waits == (one.app in waiting)
        assert (one.start is not None) == one.waits
        assert one.unended == 0
        assert state.now_s <= one.end.early_s <= one.end.usual_s <= one.end.late_s


@pytest.mark.slow
def test_what_estimates_were_off_is_learned() -> None:
    """Every task takes half as long again as estimated, which some that ended show."""
    settings = SimSettings(preset("fifo"), 1, prompt=True)
    state, ends = stood([job(number, 1.5) for number in range(4)], settings, 22.0)
    last = state.apps[-1].report.app_id
    (one,) = predict(state, settings, [last], draws=10)
    assert one.end.usual_s == pytest.approx(ends[last], rel=0.1)
    unlearned = replace(state, learned=[])
    (naive,) = predict(unlearned, settings, [last], draws=10)
    assert naive.end.usual_s < ends[last] - 0.2 * (ends[last] - 22.0)


def told(app: int, key: str, stage: str, *ratios: float) -> list[Learned]:
    return [Learned(app, key, stage, ratio) for ratio in ratios]


def waiting(app: int, key: str) -> tuple[OpenApplication, Stage]:
    """A job that waits, and its first stage."""
    state, _ = stood([job(0)], SimSettings(preset("fifo")), 4.0)
    one = replace(state.apps[0], report=replace(state.apps[0].report, app_id=app))
    one = replace(one, job=replace(one.job, history_key=key), held=(), finished=(0, 0))
    return one, one.job.stages[0]


def test_errors_of_stages_and_jobs_are_pooled_apart() -> None:
    ratios = Ratios(
        told(1, "etl", "map", 2.0, 2.0, 2.0)
        + told(1, "etl", "reduce", 0.5, 0.5, 0.5)
        + told(2, "", "map", 1.0, 1.0, 1.0)
    )
    rng = np.random.default_rng(0)
    of_key, stage = waiting(7, "etl")
    again = [Drawn(ratios, rng).ratio(of_key, stage) for _ in range(20)]
    assert again == pytest.approx([2.0] * 20), "its key's stage"
    other, stage = waiting(7, "")
    drawn = [Drawn(ratios, rng) for _ in range(60)]
    unknown = {round(one.ratio(other, stage), 3) for one in drawn}
    assert len(unknown) == 2, "as stages of others differed"
    assert min(unknown) < 0.6
    assert max(unknown) > 1.7
    assert all(len({one.ratio(other, stage) for _ in range(5)}) == 1 for one in drawn)


def test_the_work_that_is_drawn_is_right_where_estimates_are_means() -> None:
    """Tasks spread widely about estimates that are right: so are means of what is drawn."""
    wide = [0.2, 0.5, 1.0, 1.1, 2.2]
    narrow = [0.9, 0.95, 1.0, 1.05, 1.1]
    ratios = Ratios(
        [
            one
            for app in range(4)
            for one in told(app, "", "map", *wide) + told(app, "", "reduce", *narrow)
        ]
    )
    rng = np.random.default_rng(0)
    job_, stage = waiting(9, "")
    seen = []
    for _ in range(100):
        drawn = Drawn(ratios, rng)
        seen.append([drawn.ratio(job_, stage) for _ in range(40)])
    assert np.mean(seen) == pytest.approx(1.0, abs=0.05)
    spreads = np.std(seen, axis=1)
    assert ((spreads < 0.15) | (spreads > 0.4)).all(), "each like one stage, not like a mixture"
    assert spreads.min() < 0.15
    assert spreads.max() > 0.4


def test_short_tasks_that_ended_first_do_not_tell_alone() -> None:
    """Half of a stage ended, early; the others run: the stage is as its estimate says."""
    others = [
        one for app in range(8) for one in told(app, "", "map", *np.geomspace(0.4, 2.0, 9).tolist())
    ]
    standing, stage = waiting(9, "")
    held = tuple(Held("n1", 0, 0.0) for _ in range(20))
    running = replace(standing, held=held, finished=(20, 0))
    early = told(9, "", "map", *np.linspace(0.4, 0.9, 20).tolist())
    rng = np.random.default_rng(0)

    def usual(ratios: Ratios) -> float:
        return float(np.mean([Drawn(ratios, rng).ratio(running, stage) for _ in range(300)]))

    scattered = [told(100 + app, "", "map", *[0.5 + app / 8] * 5) for app in range(9)]
    known = others + [one for some in scattered for one in some] + early
    alone = usual(Ratios(known, [replace(running, held=())], 5.4))
    both = usual(Ratios(known, [running], 0.9 * stage.duration_s))
    assert alone < 0.8 < both < 1.3


def test_an_ended_application_is_refused() -> None:
    settings = SimSettings(preset("fifo"), prompt=True)
    state, _ = stood([job(0)], settings, 4.0)
    state.ended[8] = ended(8, 3.0, "KILLED")
    with pytest.raises(InputError, match="application 8: has ended: KILLED"):
        predict(state, settings, [8])
    with pytest.raises(InputError, match="application 9: is not known"):
        predict(state, settings, [9])


def ended(app: int, finished_s: float, status: str = "SUCCEEDED") -> ApplicationReport:
    return report(app, state="FINISHED", final_status=status, finished_s=finished_s)


def test_an_end_at_a_band_without_width_lies_in_it(tmp_path: Path) -> None:
    """Where every draw ends at one time, the end is off by rounding and heartbeats alone."""
    book = PredictionBook(tmp_path / "predictions.jsonl")
    ends_s = {1: 87.7, 2: 88.4, 3: 95.0}
    exact = Band(87.7, 87.7, 87.7)
    book.add(5, 50.0, [Prediction(app, "j", True, None, exact, 0) for app in ends_s])
    book.settle(5, {app: ended(app, end_s) for app, end_s in ends_s.items()})
    assert book.score().inside == pytest.approx(2 / 3)


def test_the_record_says_how_far_off_predictions_were(tmp_path: Path) -> None:
    """Bands that held half of the ends are stretched so that they would have held 90 %."""
    path = tmp_path / "state" / "predictions.jsonl"
    book = PredictionBook(path)
    assert book.score().predictions == 0
    count = 2 * CALIBRATION_PREDICTIONS_MIN
    told = [
        Prediction(app, "j", True, None, Band(90.0, 100.0, 110.0), 0) for app in range(1, count + 1)
    ]
    book.add(5, 50.0, told)
    # every other one ends in the middle of its band, the others 2 half widths late
    ends = {app: ended(app, 105.0 if app % 2 else 120.0) for app in range(1, count + 1)}
    book.settle(6, ends)
    assert PredictionBook(path).score().predictions == 0, "another cluster's"
    book.settle(5, {**ends, 1: ended(1, 70.0, "KILLED")})
    with path.open("a") as file:
        file.write('{"torn')
    score = PredictionBook(path).score()
    assert score.predictions == count - 1
    assert score.inside == pytest.approx((count / 2 - 1) / (count - 1))
    assert score.error == pytest.approx(20.0 / 70.0)
    assert score.wider == pytest.approx(2.0)
    wide = stretched(told[0], score.wider, 85.0)
    assert wide.end == Band(85.0, 100.0, 120.0)
