"""What is left of a Spark application, from what its REST API told while a real one ran."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.yarn.stages import Known, Remaining, outline, read_stages, remaining

RECORDED = Path(__file__).with_name("spark_rest_stages.json")


@pytest.fixture(scope="module")
def looks() -> list[list[dict[str, Any]]]:
    """`/stages` of one run of two jobs with two stages each, look by look."""
    found: list[list[dict[str, Any]]] = json.loads(RECORDED.read_text())
    return found


def item(
    number: int,
    status: str,
    tasks: int = 4,
    done: int = 0,
    active: int = 0,
    ms: int = 0,
    began: str = "",
    ended: str = "",
    name: str = "",
    attempt: int = 0,
) -> dict[str, Any]:
    """A stage as Spark tells it."""
    dates = {"submissionTime": began, "completionTime": ended}
    return {
        "stageId": number,
        "attemptId": attempt,
        "status": status,
        "numTasks": tasks,
        "numActiveTasks": active,
        "numCompleteTasks": done,
        "executorRunTime": ms,
        "executorDeserializeTime": 0,
        "name": name or f"stage {number}",
        **{k: f"2026-01-01T00:00:{v}GMT" for k, v in dates.items() if v},
    }


def test_a_recorded_run_shrinks_to_nothing(looks: list[list[dict[str, Any]]]) -> None:
    """Without an earlier run: nothing until the first task ended, then what was seen of it."""
    left = [remaining(read_stages(look)) for look in looks]
    told = [one for one in left if one is not None]
    assert left[0] is None
    assert len(told) > 5
    run = outline(read_stages(looks[-1]))
    assert [known.tasks for known in run] == [12, 4, 6, 2]
    assert [known.parents for known in run] == [(), (0,), (1,), (2,)]
    # nothing of the last stage had ended yet: a task of it takes as long as all others did
    usual_s = sum(known.tasks * known.task_s for known in run[:3]) / 22
    assert told[-1] == pytest.approx(Remaining(2 * usual_s, usual_s))


def test_a_second_run_knows_the_whole_graph_at_once(looks: list[list[dict[str, Any]]]) -> None:
    run = outline(read_stages(looks[-1]))
    left = [remaining(read_stages(look), run) for look in looks]
    whole = sum(known.tasks * known.task_s for known in run) - run[0].task_s  # one task runs
    path = sum(known.task_s for known in run)
    assert left[0] == pytest.approx(Remaining(whole, path))
    paths = [one.path_s for one in left if one is not None]
    assert all(after <= before * 1.5 for before, after in pairwise(paths))
    assert left[-1] == pytest.approx(Remaining(2 * run[-1].task_s, run[-1].task_s))


def test_the_path_is_the_longest_of_those_beside_each_other() -> None:
    """Two stages at once, then one that waits for both; then another job."""
    run = [
        item(0, "COMPLETE", 4, 4, 0, 8_000, "10.000", "14.000"),
        item(1, "COMPLETE", 2, 2, 0, 12_000, "10.001", "20.000"),
        item(2, "COMPLETE", 3, 3, 0, 3_000, "20.001", "22.000"),
        item(3, "COMPLETE", 1, 1, 0, 5_000, "22.100", "28.000"),
    ]
    known = outline(read_stages(run))
    assert known == (
        Known(("stage 0", 0), 4, 2.0, ()),
        Known(("stage 1", 0), 2, 6.0, ()),
        Known(("stage 2", 0), 3, 1.0, (0, 1)),
        Known(("stage 3", 0), 1, 5.0, (2,)),
    )
    now = [item(0, "ACTIVE", 4, 1, 2, 2_000), item(1, "ACTIVE", 2, 0, 1), item(2, "PENDING", 3)]
    # one task of 2 s, one of 6 s, three of 1 s and one of 5 s did not start
    assert remaining(read_stages(now), known) == Remaining(16.0, 12.0)
    # unknown before: 0 and 1 beside each other, 2 after them; a task takes 2 s as far as is known
    assert remaining(read_stages(now)) == Remaining(2.0 + 2.0 + 6.0, 4.0)
    done = [*run[:2], item(2, "ACTIVE", 3, 1, 2, 1_000)]
    assert remaining(read_stages(done), known) == Remaining(5.0, 6.0)


def test_the_newest_try_of_a_stage_counts_and_a_skipped_one_does_not() -> None:
    tried = [
        item(0, "FAILED", 4, 2, 0, 4_000),
        item(0, "ACTIVE", 4, 1, 0, 3_000, attempt=1),
        item(1, "SKIPPED", 9),
        item(2, "PENDING", 2, name="stage 0"),
    ]
    stages = read_stages(tried)
    assert [(s.key, s.tasks) for s in stages] == [(("stage 0", 0), 4), (("stage 0", 1), 2)]
    assert remaining(stages) == Remaining(3 * 3.0 + 2 * 3.0, 6.0)


def _damage() -> Iterator[Any]:
    for key in ("stageId", "numTasks", "executorRunTime", "status", "name", "submissionTime"):
        for value in (None, [], {}, "x", -1, 1e999, float("nan")):
            yield {**item(0, "ACTIVE", 4, 1, 1, 1_000, "10.000"), key: value}
    yield from (None, 3, "x", [], {"stageId": 1})


def test_damage_is_refused_or_harmless() -> None:
    for odd in _damage():
        try:
            left = remaining(read_stages([odd]))
        except ValueError:
            continue
        assert left is None or left.task_s >= 0
    many = [item(n, "COMPLETE", 15 * 10**307, 15 * 10**307) for n in (0, 1)]
    with pytest.raises(ValueError, match="stage 0"):  # their sum is no float
        read_stages(many)
    for whole in ("text", {"RemoteException": {}}, 3):
        with pytest.raises((ValueError, TypeError)):
            read_stages(whole)  # type: ignore[arg-type]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 59), st.integers(0, 59)),
        max_size=12,
    )
)
def test_outlines_are_acyclic_and_never_less_than_a_stage(rows: list[tuple[int, ...]]) -> None:
    stages = read_stages(
        [
            item(
                n,
                "COMPLETE",
                done + more,
                done,
                0,
                1_000 * done,
                f"{began:02d}.000",
                f"{max(began, ended):02d}.000",
            )
            for n, (done, more, began, ended) in enumerate(rows)
        ]
    )
    known = outline(stages)
    assert all(parent < at for at, one in enumerate(known) for parent in one.parents)
    left = remaining([], known)
    if left is not None:
        times = [one.task_s for one in known if one.tasks]
        assert max(times) <= left.path_s <= sum(times) + 1e-6
        assert left.task_s == pytest.approx(sum(one.tasks * one.task_s for one in known))
