"""How much one caller may have: applications, submissions a second, facts that wait for it."""

import asyncio
import json
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nm.process.metrics import NodeMetrics
from rm.process.metrics import ManagerMetrics
from rm.process.rate import Rate
from rm.process.watching import BATCH_MAX, KEPT_FACTS_MAX, Watching
from rm.settings import ManagerSettings
from rm.state.lifecycle import AppState, AttemptState, RmNodeState
from testkit.builders import ask, job
from testkit.manager import Rig
from testkit.matching import VIEWING
from weft.model.errors import InputError
from weft.model.queues import QueueSpec
from weft.protocol.facts import (
    ClosedRun,
    Fact,
    NodeChanged,
    PlacedRun,
    RunFact,
    StartedRun,
    StoppedRun,
    facts_of,
)
from weft.protocol.messages import AskType, Outcome
from weft.protocol.requests import (
    Explain,
    GetApplication,
    KillApplication,
    ListQueues,
    MoveApplication,
    Refused,
    SubmitApplication,
)
from weft.runtime.exposition import Exposition


def test_every_state_has_its_series_before_anything_is_in_it() -> None:
    out = Exposition()
    metrics = ManagerMetrics(out)
    shown = out.text().decode()
    for series, states in (
        ("weft_nodes", RmNodeState),
        ("weft_attempts_total", AttemptState),
    ):
        for state in states:
            assert f'{series}{{state="{state.name}"}} 0.0' in shown
    for state in AppState:
        ended = "_ended_total" if state.name in {"FINISHED", "FAILED", "KILLED"} else ""
        assert f'weft_apps{ended}{{state="{state.name}"}} 0.0' in shown
    metrics.note(NodeChanged("n1", "RUNNING", (4.0,)))
    metrics.note(NodeChanged("n1", "LOST", (4.0,)))
    shown = out.text().decode()
    assert 'weft_nodes{state="RUNNING"} 0.0' in shown
    assert 'weft_nodes{state="LOST"} 1.0' in shown


def test_a_queue_has_so_many_applications_at_a_time() -> None:
    settings = ManagerSettings(prompt=True, queue_apps_max=3)
    rig = Rig(settings=settings)
    first = rig.submit(job(user="ann"))
    rig.submit(job(user="ann"))
    rig.submit(job(user="bob"))
    refused = rig.ask_manager(SubmitApplication(job(user="cyd"), ""))
    assert isinstance(refused, Refused)
    assert refused.code == "resource_exhausted"
    assert "has 3 applications" in refused.problem
    rig.ask_manager(KillApplication(first))
    assert rig.submit(job(user="ann"), "x") == 4, "what was refused may be said again"


@pytest.mark.parametrize("matcher", VIEWING)
def test_an_application_that_is_over_counts_no_more_while_its_containers_end(matcher: str) -> None:
    settings = ManagerSettings(queue_apps_max=1)
    rig = Rig(matcher, settings)
    rig.add_node()
    master = rig.start(job(user="ann"))
    rig.allocate(master, ask(1, 1))
    rig.beat()
    rig.allocate(master)
    assert master.containers
    refused = rig.ask_manager(SubmitApplication(job(user="ann"), "x"))
    assert isinstance(refused, Refused)
    rig.ask_manager(KillApplication(1))
    assert len(rig.manager.books.holdings), "its containers run on until their node is asked"
    assert rig.submit(job(user="ann")) == 2
    refused = rig.ask_manager(SubmitApplication(job(user="bob"), "x"))
    assert isinstance(refused, Refused), "the first one is taken off once"
    rig.beat(later_s=1.0)
    rig.beat(later_s=1.0)
    assert isinstance(rig.ask_manager(SubmitApplication(job(user="bob"), "x")), Refused)


LIMITED = QueueSpec(
    "root",
    children=(
        QueueSpec("a", 0.5, max_applications=2, max_am_share=0.25),
        QueueSpec(
            "b", 0.5, max_am_share=0.1, children=(QueueSpec("b1", 0.5), QueueSpec("b2", 0.5))
        ),
        QueueSpec("c", 0.0, max_applications=3),
    ),
)


def limited(matcher: str) -> Rig:
    """Ten nodes of 4 cores: masters of 1 core in queue a may hold 5 cores, those below b 2."""
    rig = Rig(matcher, ManagerSettings(master_demand={"vcores": 1.0}), LIMITED)
    for number in range(10):
        rig.add_node(f"n{number}")
    return rig


@pytest.mark.parametrize("matcher", VIEWING)
def test_a_queue_refuses_what_is_beyond_its_maximum_of_applications(matcher: str) -> None:
    rig = limited(matcher)
    first, _ = rig.submit(job(queue="a")), rig.submit(job(queue="a"))
    refused = rig.ask_manager(SubmitApplication(job(queue="a"), "x"))
    assert isinstance(refused, Refused)
    assert refused.code == "resource_exhausted"
    assert "root.a has 2 applications" in refused.problem
    other = rig.submit(job(queue="c"))
    moved = rig.ask_manager(MoveApplication(other, "a"))
    assert isinstance(moved, Refused), "nor by a detour"
    assert rig.ask_manager(GetApplication(other)).queue == "root.c"
    rig.ask_manager(KillApplication(first))
    rig.ask_manager(MoveApplication(other, "a"))
    assert rig.ask_manager(GetApplication(other)).queue == "root.a"
    report = rig.ask_manager(ListQueues())
    assert [(q.max_applications, q.max_am_share) for q in report.children] == [
        (2, 0.25),
        (0, 0.1),
        (3, 1.0),
    ]


def _waiting_for(settings: ManagerSettings, *queues: QueueSpec) -> str:
    """What is told of the third master of one user, of 1 core, on four cores."""
    rig = Rig("capacity", settings, QueueSpec("root", children=queues))
    rig.add_node()
    apps = [rig.submit(job(queue="a", user="ann")) for _ in range(3)]
    rig.submit(job(queue="a", user="bob"))
    for _ in range(3):
        rig.beat()
    return str(rig.ask_manager(Explain(apps[-1])).text)


def test_the_limit_that_a_master_waits_for_is_told() -> None:
    small = ManagerSettings(master_demand={"vcores": 1.0}, master_share_max=0.5)
    large = ManagerSettings(master_demand={"vcores": 1.0}, master_share_max=1.0)
    half = QueueSpec("a", 0.5, 0.5)
    for settings, queues, told in (
        (
            small,
            (QueueSpec("a", 1.0),),
            "masters hold all that they may, 0.5 of the cluster (master_share_max)",
        ),
        (
            large,
            (QueueSpec("a", 1.0, max_am_share=0.5),),
            "masters in root.a hold all that they may, 0.5 of its guarantee",
        ),
        (large, (half, QueueSpec("b", 0.5)), "queue root.a is at its limit"),
        (
            large,
            (QueueSpec("a", 0.25, user_limit_factor=1.0),),
            "its user in root.a is at the limit",
        ),
    ):
        found = _waiting_for(settings, *queues)
        assert found == f"waiting for a container for its master: {told}"


@pytest.mark.parametrize("matcher", VIEWING)
def test_masters_of_a_queue_wait_beyond_their_share_of_it(matcher: str) -> None:
    rig = limited(matcher)
    below = [rig.submit(job(queue=f"b{1 + i % 2}")) for i in range(5)]
    for _ in range(3):
        rig.beat()
    running = [app for app in below if rig.manager.books.apps[app].attempt.master is not None]
    assert len(running) == 2, "0.1 of b's 20 cores, over both queues below it"
    assert rig.manager.books.master_usage[0][0] == 2.0
    waiting = next(app for app in below if app not in running)
    assert "masters in root.b hold all that they may" in rig.ask_manager(Explain(waiting)).text
    assert rig.submit(job(queue="a"))
    rig.beat()
    assert rig.manager.books.master_usage[0][0] == 3.0, (
        "another queue's master does not wait for them"
    )
    rig.ask_manager(MoveApplication(running[0], "c"))
    rig.beat()
    assert rig.manager.books.master_usage[0][0] == 4.0, "what left the queue made room in it"


def test_one_master_may_always_run() -> None:
    tree = QueueSpec("root", children=(QueueSpec("tiny", 0.01, max_am_share=0.01),))
    rig = Rig("capacity", ManagerSettings(master_demand={"vcores": 1.0}), tree)
    rig.add_node()
    rig.submit(job(queue="tiny"))
    rig.submit(job(queue="tiny"))
    rig.beat()
    rig.beat()
    assert rig.manager.books.master_usage[0][0] == 1.0


def test_submissions_beyond_the_rate_are_told_when_to_come_back() -> None:
    now = [0.0]
    rate = Rate(10.0, 3.0, lambda: now[0])
    assert [rate.wait_s() for _ in range(3)] == [0.0] * 3
    assert rate.wait_s() == pytest.approx(0.1)
    now[0] += 0.1
    assert rate.wait_s() == 0.0
    assert rate.wait_s() == pytest.approx(0.1)
    now[0] += 100.0
    assert sum(rate.wait_s() == 0.0 for _ in range(10)) == 3
    assert Rate(0.0, 0.0, lambda: now[0]).wait_s() == 0.0


def test_a_slow_watcher_is_dropped_with_a_word() -> None:
    watching, run = Watching(), ClosedRun(5, "n1", Outcome.SUCCEEDED, 0, (7, 8, 9), 0, 0, 1.0, "")

    async def read_slowly() -> None:
        watching.note(run, 1.0)
        stream = watching.watch(1)
        assert len((await anext(stream))[1]) == 3
        for _ in range(KEPT_FACTS_MAX // 3 + 1):
            watching.note(run, 2.0)
        with pytest.raises(InputError, match="reads too slowly"):
            await anext(stream)

    asyncio.run(read_slowly())
    assert not watching._watchers


def test_facts_are_kept_once_for_all_who_watch() -> None:
    """Any number of watchers may ask for all that is kept, and take nothing of it."""
    watching, run = Watching(), ClosedRun(5, "n1", Outcome.SUCCEEDED, 0, (7, 8, 9), 0, 0, 1.0, "")
    for _ in range(1_000):
        watching.note(run, 1.0)

    async def all_that_is_kept() -> list[list[str]]:
        streams = [watching.watch(1) for _ in range(3)]
        return [(await anext(stream))[1] for stream in streams for _ in range(3)]

    told = asyncio.run(all_that_is_kept())
    assert [len(lines) for lines in told] == [BATCH_MAX] * 9
    for batch in range(3):
        assert all(map(operator.is_, told[batch], told[batch + 3]))


def test_who_watches_is_told_of_each_container_of_a_run_by_its_number() -> None:
    """Numbers go on where a watcher left off, be it between two containers of one run."""
    watching, run = Watching(), ClosedRun(5, "n1", Outcome.SUCCEEDED, 0, (7, 8, 9), 0, 0, 1.0, "")

    async def seen(after: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        stream = watching.watch(after)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        if after == 0:
            watching.note(run, 2.0)
        first, lines = await task
        await stream.aclose()
        for place, line in enumerate(lines):
            found.append((first + place, json.loads(line)["container"]))
        return found

    told = asyncio.run(seen(0))
    assert [container for _, container in told] == [5, 6, 7]
    for place in range(3):
        assert asyncio.run(seen(told[place][0] - 1)) == told[place:]
    for _ in range(KEPT_FACTS_MAX // 3 + 10):
        watching.note(run, 3.0)
    kept = asyncio.run(seen(1))
    assert kept[0][1] == 5, "what is thrown away goes by runs"
    assert watching._kept_facts <= KEPT_FACTS_MAX


_TASKS = st.integers(1, 5).map(lambda count: tuple(range(count)))
_OUTCOMES, _RUN_S = st.sampled_from(list(Outcome)), st.sampled_from([0.0, 0.25, 1.5, 7200.0])


@pytest.mark.slow
@given(st.data(), st.lists(st.tuples(_TASKS, st.sampled_from(list(AskType))), max_size=6))
def test_facts_of_runs_make_the_series_that_those_of_their_containers_make(
    data: st.DataObject, granted: list[tuple[tuple[int, ...], AskType]]
) -> None:
    """Of a run some may end by themselves, and what ends may never have been seen to begin."""
    noted: list[Fact | RunFact] = []
    first = 1
    for tasks, kind in granted:
        noted.append(PlacedRun(first, len(tasks), "n1", 1, 0, (1.0,), kind, "root.a", ()))
        noted.append(StartedRun(first, "n1", 0, tasks, 0, (1.0,)))
        cut = data.draw(st.integers(0, len(tasks)))
        for start, some in ((first, tasks[:cut]), (first + cut, tasks[cut:])):
            if some and data.draw(st.booleans()):
                outcome, run_s = data.draw(_OUTCOMES), data.draw(_RUN_S)
                stage = data.draw(st.sampled_from([-1, 0]))
                noted.append(StoppedRun(start, "n1", stage, some, 0, outcome, run_s))
                noted.append(ClosedRun(start, "n1", outcome, stage, some, 0, 0, run_s, ""))
                if data.draw(st.booleans()):  # told again
                    noted.append(noted[-1])
        first += len(tasks) + data.draw(st.integers(0, 1))
    found = []
    for each in (noted, [one for run in noted for one in facts_of(run)]):
        out = Exposition()
        manager, node = ManagerMetrics(out), NodeMetrics(out)
        for fact in each:
            manager.note(fact, 3.0)
            node.note(fact)
            assert out._families["weft_leftover_containers"][2][()] >= 0.0
        families = {name: family[2] for name, family in out._families.items()}
        histograms = {
            (name, labels): (one.counts, pytest.approx(one.total))
            for name, (_, series) in out._histograms.items()
            for labels, one in series.items()
        }
        found.append((families, histograms))
    assert found[0] == found[1]
