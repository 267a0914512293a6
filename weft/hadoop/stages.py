"""What is left of a Spark application's graph, from its REST API's jobs and stages. Pure.

The API tells stages with their counts of tasks, run times and dates, but no edges. What ran before
under the same name tells them: Spark submits a stage as soon as its parents are complete, so a
stage comes after those of that run that were complete when it was submitted. Stages that were never
seen before are taken one after the other in the order of their ids (parents have smaller ones),
those that run at the same time beside each other: never less than the longest path.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

STAGES_MAX = 1_000  # of one application that are looked at: the newest, as many as Spark keeps
NAME_MAX = 200
OVER = ("COMPLETE", "SKIPPED", "FAILED")


class Stage(NamedTuple):
    """One stage of a running application, as the API tells it."""

    key: tuple[str, int]  # its name (call site), and how many of that name came before
    tasks: int
    finished: int
    running: int
    task_s: float  # mean run time of a finished task; 0: none finished
    status: str  # PENDING, ACTIVE, COMPLETE, SKIPPED, FAILED
    began_s: float  # Unix time; 0: not yet
    ended_s: float


class Known(NamedTuple):
    """One stage of an application as it ran before."""

    key: tuple[str, int]
    tasks: int
    task_s: float
    parents: tuple[int, ...]  # positions; smaller than its own


class Remaining(NamedTuple):
    """What is left of an application."""

    task_s: float  # sum over tasks that did not start of their expected run time
    path_s: float  # the longest path of stages that are not done, a task's time each


def read_stages(items: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """Read `/stages` of Spark's REST API, in order of ids; raises ValueError for other data."""
    newest: dict[int, Mapping[str, Any]] = {}
    try:
        for item in items:
            number = int(item["stageId"])
            if number not in newest or item["attemptId"] > newest[number]["attemptId"]:
                newest[number] = item
        seen: Counter[str] = Counter()
        stages = []
        for number in sorted(newest)[-STAGES_MAX:]:
            item = newest[number]
            if item["status"] == "SKIPPED":
                continue  # its output existed: no run of it is a run
            name = str(item["name"])[:NAME_MAX]
            stages.append(_stage(item, (name, seen[name])))
            seen[name] += 1
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no stages of Spark's REST API: {error!r}") from None
    return stages


def _stage(item: Mapping[str, Any], key: tuple[str, int]) -> Stage:
    finished, tasks = int(item["numCompleteTasks"]), int(item["numTasks"])
    spent_s = (float(item["executorRunTime"]) + float(item["executorDeserializeTime"])) / 1000
    if tasks < 0 or finished < 0 or not 0 <= spent_s < 1e12:
        raise ValueError(f"stage {item['stageId']} has {tasks} tasks that took {spent_s} s")
    return Stage(
        key, tasks, finished, max(0, int(item["numActiveTasks"])),
        spent_s / finished if finished else 0.0, str(item["status"]),
        _unix_s(item.get("submissionTime")), _unix_s(item.get("completionTime")),
    )  # fmt: skip


def _unix_s(text: Any) -> float:
    if not text:
        return 0.0
    return datetime.strptime(
        f"{text}".replace("GMT", "+0000"), "%Y-%m-%dT%H:%M:%S.%f%z"
    ).timestamp()


def outline(stages: Sequence[Stage]) -> tuple[Known, ...]:
    """Return the graph of a run that is over, for the next run of the same name.

    What had not finished at the last look counts with the mean of what is known.
    """
    ran = [stage for stage in stages if stage.began_s]
    ran.sort(key=lambda stage: (stage.began_s, stage.key))
    usual_s = _mean_s(ran)
    found: list[Known] = []
    for position, stage in enumerate(ran):
        before = [
            other
            for other in range(position)
            if 0 < ran[other].ended_s <= stage.began_s and ran[other].status == "COMPLETE"
        ]
        # what the earlier ones waited for themselves need not be said again
        said = {parent for other in before for parent in found[other].parents}
        parents = tuple(other for other in before if other not in said)
        found.append(Known(stage.key, stage.tasks, stage.task_s or usual_s, parents))
    return tuple(found)


def remaining(stages: Sequence[Stage], before: Sequence[Known] = ()) -> Remaining | None:
    """Return what is left of a run; None where no task's time is known yet.

    `before` is an earlier run's outline; what of it was not seen yet is still to come.
    """
    times_s = {known.key: known.task_s for known in before}
    usual_s = _mean_s(stages) or _mean_known_s(before)
    if not usual_s:
        return None
    now = {stage.key: stage for stage in stages}
    work_s = 0.0
    ends_s: list[float] = []  # by position in `before`: from now to its end
    for known in before:
        stage = now.get(known.key)
        start_s = max((ends_s[parent] for parent in known.parents), default=0.0)
        if stage is None:
            work_s += known.tasks * known.task_s
            ends_s.append(start_s + (known.task_s if known.tasks else 0.0))
        elif stage.status in OVER:
            ends_s.append(0.0)
        else:
            work_s += _unstarted(stage) * (stage.task_s or known.task_s)
            ends_s.append(start_s + (stage.task_s or known.task_s))
    fresh = [stage for stage in stages if stage.key not in times_s and stage.status not in OVER]
    active_s = waiting_s = 0.0
    for stage in fresh:
        task_s = stage.task_s or usual_s
        work_s += _unstarted(stage) * task_s
        if stage.status == "ACTIVE":
            active_s = max(active_s, task_s)
        else:
            waiting_s += task_s
    path_s = max(max(ends_s, default=0.0), active_s + waiting_s)
    return Remaining(work_s, path_s)


def _unstarted(stage: Stage) -> int:
    return max(0, stage.tasks - stage.finished - stage.running)


def _mean_s(stages: Sequence[Stage]) -> float:
    count = sum(stage.finished for stage in stages)
    return sum(stage.finished * stage.task_s for stage in stages) / count if count else 0.0


def _mean_known_s(before: Sequence[Known]) -> float:
    count = sum(known.tasks for known in before)
    return sum(known.tasks * known.task_s for known in before) / count if count else 0.0
