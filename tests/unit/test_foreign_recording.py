"""A foreign application that was recorded is a job of the simulator, and runs there as it did."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rm.making import ManagerParts
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.recorder import Recorder
from sim.replay import whatif
from sim.replay.foreign import Foreign, is_foreign, played
from sim.replay.recorded_delays import Delays
from sim.settings import SimSettings
from testkit.builders import TWO_TYPES, chain
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.errors import InputError
from weft.model.job import Job, MasterSpec
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.model.queues import QueueSpec
from weft.model.recording import Asked, Recording, Request, Told
from weft.policies.presets import preset
from weft.protocol.effects import ClientRequested
from weft.protocol.facts import Placed, facts_of
from weft.protocol.messages import MANAGER
from weft.protocol.requests import SubmitApplication

EXECUTOR = {"vcores": 1.0, "memory_mb": 900.0}
# Two containers at 1 s, two more at 6 s, of which one was never granted in the run.
GROWS = Recording(
    lasted_s=21.0,
    requests=(Request(EXECUTOR, (15.0, 12.0, 9.0)),),
    asks=(Asked(1.0, 0, 2, 600.0, 1.0), Asked(6.0, 0, 4, 600.0, 1.0)),
    told=(Told(1.0, 0.0, 8.0, 30.0), Told(10.0, 0.5, 4.0, 10.0)),
    tail_s=2.0,
)
# One kind early, another kind late and on one node only.
TWO_KINDS = Recording(
    lasted_s=12.0,
    requests=(Request(EXECUTOR, (5.0, 5.0)), Request({"vcores": 2.0}, (4.0,), nodes=("n2",))),
    asks=(Asked(0.5, 0, 2, 60.0, 0.9), Asked(4.0, 1, 1, 30.0, 0.5)),
)


def open_job(name: str, recording: Recording, arrival_s: float = 0.0) -> Job:
    """A job with a master of one core."""
    master = MasterSpec({"vcores": 1.0, "memory_mb": 900.0}, recorded=recording)
    return Job(name, (), arrival_s=arrival_s, kind="SPARK", master=master)


def cluster(nodes: int = 3, memory_mb: float = 2_000.0) -> ClusterSpec:
    """Nodes of four cores."""
    specs = tuple(
        NodeSpec(f"n{number}", TWO_TYPES.vector({"vcores": 4.0, "memory_mb": memory_mb}), "r1")
        for number in range(1, nodes + 1)
    )
    return ClusterSpec(TWO_TYPES, specs)


class Seen:
    """A run with what its manager decided, and what its foreign masters were seen to do."""

    def __init__(
        self, jobs: Sequence[Job], nodes: ClusterSpec | None = None, **settings: Any
    ) -> None:
        chosen = SimSettings(scheduler=preset("capacity"), checks=True, **settings)
        simulation = Simulation(nodes or cluster(), jobs, chosen, Recorder())
        self.placed: list[tuple[float, int, str]] = []
        self.foreign = Foreign(lambda app: True)
        actor = simulation.actors[MANAGER]
        inner = actor.handle

        def handle(event: Any, now: float) -> list[Any]:
            orders = inner(event, now)
            self.foreign.listen(event, now, orders, TWO_TYPES)
            for order in orders:
                for fact in facts_of(order.fact) if hasattr(order, "fact") else ():
                    if isinstance(fact, Placed):
                        self.placed.append((now, fact.container, fact.node))
            return orders

        actor.handle = handle
        rows = simulation.run().jobs
        self.ends = {row.job.name: (row.final_status, row.finish_s) for row in rows}
        self.by_name = {row.job.name: row.app for row in rows}
        self.recordings = self.foreign.recordings({}, simulation.engine.now)

    def again(self, job: Job) -> Job:
        """The job as this run recorded it."""
        return played(job, self.recordings[self.by_name[job.name]])


@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "yarn"])
def test_an_application_asks_when_it_asked_and_holds_as_long(prompt: bool) -> None:
    seen = Seen([open_job("etl", GROWS)], cluster(2), prompt=prompt)
    found = seen.recordings[seen.by_name["etl"]]
    late_s = 0.0 if prompt else 3.0  # heartbeats of YARN's pace
    assert seen.ends["etl"][0] == "SUCCEEDED"
    assert [ask.total for ask in found.asks] == [2, 4]
    for ask, at_s in zip(found.asks, (1.0, 6.0), strict=True):
        assert at_s - 1e-6 <= ask.at_s <= at_s + late_s
    (request,) = found.requests
    assert len(request.held_s) == 4, "the fourth had no room until the second ended"
    for held_s, was_s in zip(request.held_s, (15.0, 12.0, 9.0, 0.0), strict=True):
        assert was_s - 1e-6 <= held_s <= was_s + late_s
    assert 1.0 + 15.0 + 2.0 - 1e-6 <= found.lasted_s <= 18.0 + 3 * late_s
    assert [told[1:] for told in found.told if told.work_s] == [told[1:] for told in GROWS.told]


def test_what_was_recorded_of_a_simulation_runs_again_the_same() -> None:
    (request,) = GROWS.requests
    full = replace(GROWS, requests=(replace(request, held_s=(15.0, 12.0, 9.0, 9.0)),))
    jobs = [
        open_job("etl", full),
        open_job("report", TWO_KINDS, 2.0),
        chain("own", (3, 2), arrival_s=3.0),
    ]
    seen = Seen(jobs, prompt=True)
    assert {status for status, _ in seen.ends.values()} == {"SUCCEEDED"}
    again = Seen([seen.again(jobs[0]), seen.again(jobs[1]), jobs[2]], prompt=True)
    assert again.placed == seen.placed, "every container at the same time on the same node"
    assert again.ends == seen.ends


def test_what_is_recorded_is_what_was_said() -> None:
    seen = Seen([open_job("report", TWO_KINDS)], prompt=True)
    found = seen.recordings[seen.by_name["report"]]
    assert [request.held_s for request in found.requests] == [(5.0, 5.0), (4.0,)]
    assert [request.nodes for request in found.requests] == [(), ("n2",)]
    assert [(ask.request, ask.total) for ask in found.asks] == [(0, 2), (1, 1)]
    assert [ask.at_s for ask in found.asks] == pytest.approx([0.5, 4.0])
    assert found.lasted_s == pytest.approx(8.0)


def test_a_lost_container_is_wanted_again_and_a_failed_run_fails_again() -> None:
    faults = Faults((Fault(8.0, FaultKind.CRASH, nodes=("n2",), for_s=5.0),))
    jobs = [open_job("etl", GROWS), open_job("bad", replace(TWO_KINDS, succeeded=False))]
    calm, torn = Seen(jobs, prompt=True), Seen(jobs, prompt=True, faults=faults)
    assert [status for status, _ in calm.ends.values()] == ["SUCCEEDED", "FAILED"]
    assert [status for status, _ in torn.ends.values()] == ["SUCCEEDED", "FAILED"]
    assert len(torn.placed) > len(calm.placed)


def test_what_was_never_granted_is_given_back_where_there_is_room() -> None:
    seen = Seen([open_job("etl", GROWS)], cluster(4), prompt=True)
    assert len(seen.placed) == 4
    assert seen.ends["etl"][0] == "SUCCEEDED"


def test_a_job_file_carries_a_recording() -> None:
    for recording in (GROWS, TWO_KINDS, Recording(3.0, succeeded=False)):
        job = open_job("etl", recording)
        assert not job.unmanaged
        assert not is_foreign(job)
        text = json.dumps(job_to_dict(job))
        assert job_from_dict(json.loads(text)) == job


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"lasted_s": "long"}, "master.recorded.lasted_s"),
        ({"asks": [[1.0, 7, 2, 60.0, 1.0]]}, "master.recorded.asks[0]"),
        ({"asks": [[1.0, 0, 2.5, 60.0, 1.0]]}, "master.recorded.asks[0]"),
        ({"asks": [[1.0, 0, 2, 60.0, 0.0]]}, "master.recorded.asks[0]"),
        ({"asks": [[2.0, 0, 9, 6.0, 1.0], [1.0, 0, 9, 6.0, 1.0]]}, "master.recorded.asks"),
        ({"asks": [[1.0, 0, 2, 60.0, 1.0]]}, "master.recorded.requests[0]"),
        ({"told": [[1.0, 2.0, 0.0, 0.0]]}, "master.recorded.told[0]"),
        ({"told": [[1.0]]}, "master.recorded.told[0]"),
        ({"requests": [{"demand": {"vcores": -1}}]}, "master.recorded.requests[0].demand.vcores"),
        ({"requests": {}}, "master.recorded.requests"),
        ({"succeeded": "yes"}, "master.recorded.succeeded"),
        ({"colour": 1}, "master.recorded.colour"),
    ],
)
def test_a_wrong_recording_names_its_place(change: dict[str, Any], place: str) -> None:
    data = job_to_dict(open_job("etl", GROWS))
    data["master"]["recorded"] |= change
    with pytest.raises(InputError) as caught:
        job_from_dict(data)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("requests", "total"),
    [
        ((Request({"gpus": 1.0}, (5.0,)),), 1),
        ((Request({"vcores": 100.0}, (5.0,)),), 1),
        ((Request(EXECUTOR, (5.0,), label="gpu"),), 1),
        ((Request(EXECUTOR, (5.0,), nodes=("n99",), strict=True),), 1),
        ((Request(EXECUTOR, (5.0,)),), 10**9),
        ((Request(EXECUTOR, (5.0,)),) * 1_001, 1),
        ((Request(EXECUTOR, (5.0,) * 60_000),) * 2, 60_000),
    ],
    ids=["resource", "size", "label", "node", "total", "requests", "all held"],
)
def test_what_a_recorded_master_would_wait_for_without_end_is_refused(
    requests: tuple[Request, ...], total: int
) -> None:
    asks = tuple(Asked(0.0, number, total, 1.0, 1.0) for number in range(len(requests)))
    recorder = Recorder()
    jobs = [open_job("etl", Recording(9.0, requests, asks))]
    chosen = SimSettings(scheduler=preset("capacity"), prompt=True)
    (row,) = Simulation(cluster(), jobs, chosen, recorder).run().jobs
    assert row.state == "REFUSED"
    assert "master.recorded" in row.diagnostics


def test_what_if_simulates_foreign_applications_under_another_scheduler() -> None:
    """As `weft whatif` does with a manager's tape, on which jobs have commands and no recording."""
    (request,) = GROWS.requests
    full = replace(GROWS, requests=(replace(request, held_s=(15.0, 12.0, 9.0, 9.0)),))
    told = [open_job("etl", full), open_job("report", TWO_KINDS, 2.0)]
    seen = whatif.Seen()
    seen.parts = ManagerParts(
        1, TWO_TYPES, QueueSpec("root"), "capacity", {}, ManagerSettings(prompt=True), 0
    )
    simulation = Simulation(cluster(2), told, SimSettings(prompt=True), Recorder())
    actor = simulation.actors[MANAGER]
    inner = actor.handle

    def handle(event: Any, now: float) -> list[Any]:
        orders = inner(event, now)
        if isinstance(event, ClientRequested) and isinstance(event.request, SubmitApplication):
            job = event.request.job
            assert job.master is not None
            bare = replace(job.master, command=("java",), recorded=None)
            event = replace(event, request=replace(event.request, job=replace(job, master=bare)))
        seen.listen(MANAGER, event, now, orders)
        return orders

    actor.handle = handle
    ran = [row.finish_s - row.job.arrival_s for row in simulation.run().jobs]
    assert seen.all_foreign
    with pytest.raises(InputError):
        whatif.settings_of(seen.parts, None, None)
    same = whatif.settings_of(seen.parts, None, None, foreign=seen.all_foreign)
    jobs = whatif.jobs_of(seen, measured=True)
    assert [job.arrival_s for job in jobs] == [whatif.WARM_S, whatif.WARM_S + 2.0]
    shown = [
        whatif.completion_times(
            nodes,
            jobs,
            replace(same, scheduler=whatif.exchanged(same.scheduler, name, {})),
            Delays({}),
            {},
        )
        for nodes, name in ((cluster(2), ""), (cluster(2), "graphene"), (cluster(1), ""))
    ]
    assert shown[0] == pytest.approx(ran), "as recorded: what was seen"
    assert min(shown[1]) > 0
    assert max(shown[2]) > max(ran), "on half of the nodes it takes longer"


# Spark 3.5.3 in cluster mode on three hosts with room for two containers each, as the tape of its
# manager told it: five executors of which two were lost with their host, and two asked for again.
SPARK = {
    "lasted_s": 109.49,
    "tail_s": 0.49,
    "requests": [
        {
            "demand": {"vcores": 1.0, "memory_mb": 896.0},
            "held_s": [70.665, 70.665, 99.099, 99.436, 99.358],
        }
    ],
    "asks": [
        [9.562, 0, 5, 600.0, 1.0],
        [9.672, 0, 5, 600.0, 1.0],
        [83.422, 0, 7, 600.0, 1.0],
        [108.455, 0, 5, 600.0, 1.0],
    ],
    "told": [[9.562, 0.1, 750.0, 0.0], [9.672, 0.1, 0.0, 0.0], [83.422, 0.1, 450.0, 0.0]],
}
SPARK_JCT_S, SPARK_PLACED = 109.6, [1, 2, 2]  # what ran: executors by host, beside the master


@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "yarn"])
def test_a_run_of_spark_takes_as_long_and_is_placed_as_it_was(prompt: bool) -> None:
    data = {
        "name": "executors",
        "kind": "SPARK",
        "master": {"demand": {"vcores": 1.0, "memory_mb": 896.0}, "recorded": SPARK},
    }
    seen = Seen([job_from_dict(data)], cluster(3, 2 * 896.0), prompt=prompt)
    status, end_s = seen.ends["executors"]
    assert status == "SUCCEEDED"
    assert end_s == pytest.approx(SPARK_JCT_S, rel=0.01 if prompt else 0.04)
    first = Counter(node for _, _, node in seen.placed[:5])
    assert sorted(first.values()) == SPARK_PLACED
