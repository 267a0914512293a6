"""Tez's reuse of containers: one size for a job, one task after another in each, given back."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from am.ask.reuse import Reuse
from am.ask.view import HoldView, WaitingTasks
from am.pool import Pooled
from am.sizes import pool_size
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.policies.presets import choose, with_options

SIZE = (2.0, 4096.0)
NEED = (1.0, 1024.0)
RNG = np.random.default_rng(0)


class Some(NamedTuple):
    """A group of three ready tasks, at home anywhere or on n9."""

    nodes: tuple[str, ...] = ()
    number: int = 0
    stage: int = 0
    demand: tuple[float, ...] = NEED
    racks: tuple[str, ...] = ()
    pri_score: float = 1.0
    ready: tuple[int, ...] = (0, 1, 2)
    declared_s: float = 10.0


def wish_of(asker: Reuse, pool: list[Pooled], waiting: list[Any], now: float) -> Any:
    tasks = [WaitingTasks(group, 99.0, 10.0, group.demand) for group in waiting]
    return asker.hold(HoldView(tasks, pool, SIZE, 10, 0, {}), now, RNG)


def test_a_container_gets_one_task_and_the_rest_is_asked_for() -> None:
    pool = [Pooled(7, "n1", SIZE, 99.0), Pooled(8, "n1", SIZE, 99.0)]  # two tasks fit in each
    wish = wish_of(Reuse(), pool, [Some()], 100.0)
    assert wish.start == [(7, 0), (8, 0)]
    assert wish.target == 3
    assert not wish.give_back


def test_an_idle_container_goes_back_when_its_time_is_over() -> None:
    pool = [Pooled(7, "n1", SIZE, 92.0), Pooled(8, "n1", SIZE, 97.0)]
    wish = wish_of(Reuse(idle_s=5.0), pool, [], 100.0)
    assert list(wish.give_back) == [7]
    assert wish.target == 1
    assert wish.wake_after_s == pytest.approx(2.0)


def test_tasks_with_a_home_wait_for_it_while_more_are_asked_for() -> None:
    pool = [Pooled(7, "n1", SIZE, 99.0)]
    wish = wish_of(Reuse(wait_s=3.0), pool, [Some(nodes=("n9",))], 100.0)
    assert not wish.start
    assert wish.target == 1 + 3


def test_the_size_is_a_percentile_of_the_job_or_the_tasks_own_where_none_holds_it() -> None:
    types = ResourceTypes((ResourceType("vcores", guess_kind("vcores")),))
    job = Job("j", (Stage("a", 8, 1.0, {"vcores": 1.0}), Stage("b", 2, 1.0, {"vcores": 6.0})))
    for choice, least in (("p75", 1.0), ("p90", 6.0), ("largest", 6.0)):
        assert pool_size(choice, job, types, [((8.0,), 2)]) == (least,)
    assert pool_size("largest", job, types, [((4.0,), 2)]) == (0.0,)
    assert pool_size(0.5, job, types, [((4.0,), 2)]) == (2.0,)


@pytest.mark.parametrize("size", ["task", "p50", 0.25])
def test_other_sizes_are_refused(size: Any) -> None:
    with pytest.raises(InputError, match="p75, p90, largest"):
        Reuse(container=size)


def test_a_simulated_job_runs_in_its_containers_and_sooner() -> None:
    need = {"vcores": 1.0, "memory_mb": 800.0}
    job = Job(
        "j",
        (
            Stage("a", 8, 3.0, need),
            Stage("b", 6, 2.0, need, (Edge("a"),)),
        ),
    )
    cluster = cluster_from_text("2x4vcores,8192memory_mb")
    ends = {}
    for name, options in (("all_ready", {"asker.container": "p90"}), ("reuse", {})):
        recorder = Recorder()
        chosen = with_options(choose("tez", asker=name), options)
        Simulation(cluster, [job], SimSettings(chosen, 0), recorder).run()
        tasks = recorder.columns()
        order = np.lexsort((tasks.start_s, tasks.container))
        same = np.diff(tasks.container[order]) == 0
        assert (tasks.start_s[order][1:] >= tasks.end_s[order][:-1] - 1e-9)[same].all()
        ends[name] = recorder.jobs[0].finish_s, len(set(tasks.container.tolist()))
    assert ends["all_ready"][1] == 14
    assert ends["reuse"][1] <= 8
    assert ends["reuse"][0] < ends["all_ready"][0] - 2.0


def test_a_busy_container_gets_no_second_task_though_it_has_room() -> None:
    busy: Any = Pooled(7, "n1", SIZE, 99.0)
    busy.tasks["a task"] = "of 1 vcore"
    wish = wish_of(Reuse(), [busy], [Some()], 100.0)
    assert not wish.start
    assert wish.target == 1 + 3
