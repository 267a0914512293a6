"""A simulated run that is put on tape, cut and forked goes on as the run itself did."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

import sim.cluster
import sim.replay.verify
from rm.making import ManagerParts
from sim.replay import whatif
from sim.replay.fork import ForkedSimulation, compare
from sim.replay.rebuild import Cut, Tape, stand, survey
from sim.replay.recorded_delays import BETWEEN, Delays, MeasuredSimulation, Recorded
from sim.settings import SimSettings, manager_settings
from tests.parity.test_tapes import CLUSTER, CORES, Tapes, jobs
from weft.model.cluster import ClusterSpec, NodeSpec, cluster_from_dict
from weft.model.errors import InputError
from weft.model.ids import AppId
from weft.policies.presets import preset
from weft.protocol.effects import ClientRequested
from weft.protocol.messages import MANAGER
from weft.protocol.requests import (
    ClientRequest,
    DecommissionNode,
    KillApplication,
    NewApplication,
    RecommissionNode,
    SetExpiry,
    SetPriority,
)
from weft.tape.made import to_data
from weft.tape.rows import TapeReader

NO_DELAYS = Delays({})
MORE = [*jobs(5), replace(jobs(1)[0], name="late", arrival_s=31.0)]


# What clients ask while the jobs of MORE run, s; two numbers are reserved that nobody uses.
ASKED: list[tuple[float, ClientRequest]] = [
    (6.0, NewApplication()),
    (6.0, NewApplication()),
    (7.5, SetPriority(AppId(2), 7)),
    (10.0, DecommissionNode(CLUSTER.nodes[0].node_id, 2.0)),
    (10.5, KillApplication(AppId(1))),
    (16.5, SetExpiry(AppId(5), 21.5)),
    (20.0, RecommissionNode(CLUSTER.nodes[0].node_id)),
]


def recorded(
    settings: SimSettings,
    monkeypatch: pytest.MonkeyPatch,
    asked: Sequence[tuple[float, ClientRequest]] = (),
    late: Sequence[tuple[float, NodeSpec]] = (),
) -> tuple[Tape, list[float]]:
    """A run's tape, and when its jobs ended, s."""
    tapes, chosen = Tapes(), settings.scheduler
    parts = ManagerParts(
        0,
        CLUSTER.types,
        CLUSTER.queues,
        chosen.matcher,
        chosen.matcher_options,
        manager_settings(settings),
        0,
    )
    tapes.told = to_data(parts)
    with monkeypatch.context() as patched:
        patched.setattr(sim.cluster, "Actor", tapes.actor)
        for kind in CORES:
            patched.setattr(sim.cluster, kind.__name__, tapes.maker(kind))
        simulation = MeasuredSimulation(
            CLUSTER, MORE, settings, NO_DELAYS, recorded=Recorded((), late)
        )
        for number, (at_s, request) in enumerate(asked):
            event = ClientRequested(f"by-{number}", request)
            simulation.engine.at(at_s, simulation.actors[MANAGER], event)
        ends = [row.finish_s for row in simulation.run().jobs]
        simulation.go_on(max(ends) + 5.0)  # the last beats, so that its processes live on
    reader = TapeReader()
    rows = [*reader.rows(tapes.writer.take()), *reader.finish()]
    monkeypatch.setattr(sim.replay.verify, "make_core", tapes.twin)
    return (lambda: rows), ends


def cut_of(tape: Tape, at_s: float) -> Cut:
    cut = stand(survey([tape], [], at_s), [tape])
    cut.delays = NO_DELAYS
    return cut


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prompt"), [("capacity", False), ("graphene", True), ("carbyne", False), ("drf", True)]
)
def test_a_fork_ends_as_the_run_did(
    name: str, prompt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that runs, is held, pending, planned or under way is lost by the cut."""
    settings = SimSettings(preset(name), 3, prompt=prompt, skip_idle=False)
    tape, ends = recorded(settings, monkeypatch)
    for at_s in (1.7, 14.0001, 30.9):
        forked = ForkedSimulation(cut_of(tape, at_s), settings)
        went_on = forked.run().jobs
        wanted = [one for one in ends if one > at_s]
        assert sorted(row.finish_s for row in went_on) == pytest.approx(sorted(wanted), abs=1e-6)
        assert {row.final_status for row in went_on} == {"SUCCEEDED"}
        assert forked.engine.now < ends[-1] + 1.0


@pytest.mark.slow
def test_clients_change_the_same_from_the_start_and_after_a_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed jobs end when they were killed, numbers are those of then, and a node comes late."""
    late = [(9.0, CLUSTER.nodes[-1])]
    settings = SimSettings(preset("fifo"), 3, prompt=True, skip_idle=False)
    tape, _ = recorded(settings, monkeypatch, ASKED, late)
    whole = survey([tape], [], math.inf)
    seen, cluster = whole.seen, whatif.cluster_of(whole.seen)
    assert list(seen.jobs) == [1, 2, 5, 6, 7, 8]
    rows = whatif.compare(seen, settings, settings, cluster, False, NO_DELAYS)
    assert [row.app for row in rows] == list(seen.jobs)
    assert [row.same_s for row in rows] == pytest.approx([row.recorded_s for row in rows], abs=1e-6)
    assert [row.why for row in rows if row.recorded_s < 0] == ["KILLED"] * 2
    for at_s in (5.0, 9.5, 17.0):
        surveyed = survey([tape], [], at_s)
        surveyed.delays = NO_DELAYS
        after = compare(surveyed, [tape], settings, None, None)
        assert {row.app for row in after} == {
            app for app, (_, end_s) in seen.ended.items() if end_s > at_s
        }
        assert [row.same_s for row in after] == pytest.approx(
            [row.recorded_s for row in after], abs=1e-6
        )


@pytest.mark.slow
def test_a_cut_before_the_first_node_has_them_come(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SimSettings(preset("fifo"), 3, prompt=True, skip_idle=False)
    late = [(2.0, spec) for spec in CLUSTER.nodes]
    tape, ends = recorded(settings, monkeypatch, (), late)
    went_on = ForkedSimulation(cut_of(tape, 1.0), settings).run().jobs
    assert [row.finish_s for row in went_on] == pytest.approx(ends, abs=0.1)


def changed(
    tape: Tape, settings: SimSettings, other: SimSettings | None, cluster: ClusterSpec | None
) -> dict[AppId, tuple[float, float, float]]:
    surveyed = survey([tape], [], 14.0)
    surveyed.delays = NO_DELAYS
    rows = compare(surveyed, [tape], settings, other, cluster)
    return {row.app: (row.recorded_s, row.same_s, row.changed_s) for row in rows}


@pytest.mark.slow
def test_what_follows_may_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """More nodes end jobs sooner, fewer later, each not before the cut; policies are exchanged."""
    settings = SimSettings(preset("fifo"), 3, skip_idle=False)
    tape, _ = recorded(settings, monkeypatch)
    same = changed(tape, settings, None, None)
    assert len(same) > 3
    assert all(was == pytest.approx(now, abs=1e-6) for was, now, _ in same.values())
    assert all(now == other for _, now, other in same.values())

    def mean(rows: dict[AppId, tuple[float, float, float]]) -> float:
        return sum(row[2] for row in rows.values()) / len(rows)

    def nodes(count: int, vcores: float = 4) -> ClusterSpec:
        capacity = {"vcores": vcores, "memory_mb": 8192}
        return cluster_from_dict({"nodes": [{"count": count, "capacity": capacity, "racks": 2}]})

    few, many = (changed(tape, settings, None, nodes(count)) for count in (2, 12))
    assert mean(many) < mean(same) - 0.5
    assert mean(few) > mean(same) + 1.0
    larger = changed(tape, settings, None, nodes(6, 8))
    assert all(row[2] > 0 for row in larger.values()), "what ran on the old nodes runs again"
    tiny = changed(tape, settings, None, nodes(6, 0.5))
    assert all(row[2] == -1.0 for row in tiny.values()), "no node has room for a task"
    crowded = nodes(2)
    other = changed(tape, settings, replace(settings, scheduler=preset("drf")), crowded)
    assert {app: row[1] for app, row in other.items()} == {app: row[1] for app, row in same.items()}
    assert [row[2] for row in other.values()] != [row[2] for row in few.values()]


@pytest.mark.slow
def test_what_follows_may_have_the_delays_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SimSettings(preset("capacity"), 3, prompt=True, skip_idle=False)
    tape, _ = recorded(settings, monkeypatch)
    surveyed = survey([tape], [], 14.0)
    surveyed.delays = NO_DELAYS
    slow = Delays({name: [0.4] for name in BETWEEN})
    rows = compare(surveyed, [tape], settings, None, None, slow)
    assert all(row.same_s >= row.recorded_s for row in rows)
    assert sum(row.same_s - row.recorded_s for row in rows) > 1.0


@pytest.mark.slow
def test_a_time_when_nothing_ran_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SimSettings(preset("fifo"), 3, skip_idle=False)
    tape, ends = recorded(settings, monkeypatch)
    with pytest.raises(
        InputError, match=r"no Resource Manager ran at 900 s; one ran from 0\.0 to \d+\.\d s"
    ):
        cut_of(tape, 900.0)
    with pytest.raises(InputError, match=rf"no job was there .* ended at {ends[-1]:.1f} s"):
        ForkedSimulation(cut_of(tape, ends[-1] + 3.0), settings)
