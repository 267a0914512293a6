"""What is left of a Spark application's graph, from its REST API's stages or its events. Pure.

The API tells stages with their counts of tasks, run times and dates, but no edges; the event log
(`events`) tells them too. What ran before under the same name tells them as well: Spark submits a
stage as soon as its parents are complete, so a stage comes after those of that run that were
complete when it was submitted. Stages that were never seen before and tell no edges are taken one
after the other in the order of their ids (parents have smaller ones), those that run at the same
time beside each other: never less than the longest path.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

# The newest stages of an application count, as many as Spark keeps.
STAGES_MAX = 1_000
NAME_MAX = 200
# Spark counts the tasks of a stage in an Int.
TASKS_MAX = 2**31 - 1
OVER = ("COMPLETE", "SKIPPED", "FAILED")


class Stage(NamedTuple):
    """One stage of a running application, as the API tells it.

    `key` is its name (call site) and how many stages of that name came before. `task_s` is the mean
    run time of a finished task (0: none finished). `status` is PENDING, ACTIVE, COMPLETE, SKIPPED
    or FAILED. `began_s` is Unix time (0: not yet), `parents` are numbers of stages (None: unknown),
    and `profile` is the resource profile, which executors its tasks need.
    """

    key: tuple[str, int]
    tasks: int
    finished: int
    running: int
    task_s: float
    status: str
    began_s: float
    ended_s: float
    number: int = -1
    parents: tuple[int, ...] | None = None
    profile: int = 0


class Known(NamedTuple):
    """One stage of an application as it ran before.

    `parents` are positions smaller than its own.
    """

    key: tuple[str, int]
    tasks: int
    task_s: float
    parents: tuple[int, ...]
    profile: int = 0


class Remaining(NamedTuple):
    """What is left of an application.

    `task_s` sums the expected run times of the tasks that did not start; `path_s` is the longest
    path of stages that are not done, a task's time each.
    """

    task_s: float
    path_s: float


class Left(NamedTuple):
    """What is left of one stage.

    `work_s` is that of its tasks that did not start. Both times count from now, along the longest
    path to it.
    """

    profile: int
    work_s: float
    begins_s: float
    ends_s: float


class Part(NamedTuple):
    """What is left of the stages that need one kind of executor (a resource profile).

    `task_s` sums over the tasks that did not start; `begins_s` is from now until the first of them
    is due.
    """

    task_s: float
    begins_s: float


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
            # The output of a skipped stage existed, so it did not run.
            if item["status"] == "SKIPPED":
                continue
            name = str(item["name"])[:NAME_MAX]
            stages.append(_stage(item, (name, seen[name])))
            seen[name] += 1
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no stages of Spark's REST API: {error!r}") from None
    return stages


def _stage(item: Mapping[str, Any], key: tuple[str, int]) -> Stage:
    finished, tasks = int(item["numCompleteTasks"]), int(item["numTasks"])
    spent_s = (float(item["executorRunTime"]) + float(item["executorDeserializeTime"])) / 1000
    if not (0 <= tasks <= TASKS_MAX and 0 <= finished <= TASKS_MAX and 0 <= spent_s < 1e12):
        raise ValueError(f"stage {item['stageId']}: {tasks:g} tasks, {finished:g} took {spent_s} s")
    parents = item.get("parentIds")
    return Stage(
        key,
        tasks,
        finished,
        max(0, int(item["numActiveTasks"])),
        spent_s / finished if finished else 0.0,
        str(item["status"]),
        _unix_s(item.get("submissionTime")),
        _unix_s(item.get("completionTime")),
        int(item["stageId"]),
        None if parents is None else tuple(map(int, parents)),
        int(item.get("resourceProfileId", 0)),
    )


def _unix_s(text: Any) -> float:
    if not text:
        return 0.0
    # The event log has milliseconds.
    if isinstance(text, int | float):
        return float(text) / 1000
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
        found.append(Known(stage.key, stage.tasks, stage.task_s or usual_s, parents, stage.profile))
    return tuple(found)


def remaining(stages: Sequence[Stage], before: Sequence[Known] = ()) -> Remaining | None:
    """Return what is left of a run; None where no task's time is known yet.

    `before` is an earlier run's outline; what of it was not seen yet is still to come.
    """
    left = stages_left(stages, before)
    if left is None:
        return None
    return Remaining(
        sum(one.work_s for one in left), max((one.ends_s for one in left), default=0.0)
    )


def parts(left: Sequence[Left]) -> dict[int, Part]:
    """Return what is left by the kind of executor that it needs."""
    found: dict[int, Part] = {}
    for one in left:
        if one.work_s > 0:
            task_s, begins_s = found.get(one.profile, (0.0, one.begins_s))
            found[one.profile] = Part(task_s + one.work_s, min(begins_s, one.begins_s))
    return found


def stages_left(stages: Sequence[Stage], before: Sequence[Known] = ()) -> list[Left] | None:
    """Return every stage that is not done; None where no task's time is known yet."""
    usual_s = _mean_s(stages) or _mean_known_s(before)
    if not usual_s:
        return None
    left = _of_before(stages, before)
    known = {one.key for one in before}
    fresh = [stage for stage in stages if stage.key not in known]
    if all(stage.parents is not None for stage in fresh):
        return left + _by_edges(fresh, usual_s)
    fresh = [stage for stage in fresh if stage.status not in OVER]
    active_s = max(
        (stage.task_s or usual_s for stage in fresh if stage.status == "ACTIVE"), default=0.0
    )
    end_s = active_s
    for stage in fresh:
        task_s = stage.task_s or usual_s
        begins_s = 0.0 if stage.status == "ACTIVE" else end_s
        left.append(Left(stage.profile, _unstarted(stage) * task_s, begins_s, begins_s + task_s))
        end_s = max(end_s, begins_s + task_s)
    return left


def _of_before(stages: Sequence[Stage], before: Sequence[Known]) -> list[Left]:
    """Return what is left of the stages that an earlier run had, by its edges."""
    now = {stage.key: stage for stage in stages}
    # From now to the end of each stage of `before`.
    ends_s: list[float] = []
    left: list[Left] = []
    for known in before:
        stage = now.get(known.key)
        begins_s = max((ends_s[parent] for parent in known.parents), default=0.0)
        if stage is not None and stage.status in OVER:
            ends_s.append(0.0)
            continue
        task_s = (stage.task_s if stage is not None else 0.0) or known.task_s
        count = known.tasks if stage is None else _unstarted(stage)
        long_s = task_s if stage is not None or known.tasks else 0.0
        ends_s.append(begins_s + long_s)
        profile = known.profile if stage is None else stage.profile
        left.append(Left(profile, count * task_s, begins_s, begins_s + long_s))
    return left


def _by_edges(stages: Sequence[Stage], usual_s: float) -> list[Left]:
    """Return what is left of stages that say what they wait for; parents have smaller numbers."""
    ends_s: dict[int, float] = {}
    left: list[Left] = []
    for stage in sorted(stages, key=lambda stage: stage.number):
        if stage.status in OVER:
            continue
        begins_s = max((ends_s.get(parent, 0.0) for parent in stage.parents or ()), default=0.0)
        task_s = stage.task_s or usual_s
        ends_s[stage.number] = begins_s + task_s
        left.append(Left(stage.profile, _unstarted(stage) * task_s, begins_s, begins_s + task_s))
    return left


def _unstarted(stage: Stage) -> int:
    return max(0, stage.tasks - stage.finished - stage.running)


def _mean_s(stages: Sequence[Stage]) -> float:
    count = sum(stage.finished for stage in stages)
    return sum(stage.finished * stage.task_s for stage in stages) / count if count else 0.0


def _mean_known_s(before: Sequence[Known]) -> float:
    count = sum(known.tasks for known in before)
    return sum(known.tasks * known.task_s for known in before) / count if count else 0.0
