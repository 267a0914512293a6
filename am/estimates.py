"""What a master estimates of durations: the job file, past runs, and the tasks seen to finish.

The truth (`actual_*`) is never read here. A stage's belief is one factor on the durations that its
job file declares, so that tasks of different length keep their proportions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.model.job import Job, Stage
from weft.model.json_types import Json, Table

# Maps a job's history key and a stage's name to the fields of a `PastStage`.
History = Mapping[str, Mapping[str, Mapping[str, float]]]


# The first tasks of a stage of which nothing is known are taken to last so long, s: deliberately
# more than most.
UNKNOWN_S = 30.0
# The word of the job file, and of past runs, is worth so many finished tasks.
FILE_WEIGHT, HISTORY_WEIGHT = 2.0, 4.0
# A smaller change, relative, is not told.
TELL_ABOVE = 0.1


class Estimates:
    """Beliefs by stage, refined by every finished task in O(1).

    `base_s[s]` is the mean declared duration of a task (the over-estimate where none is declared),
    `factor[s]` what it is multiplied with, `told[s]` the factor that others last received.
    """

    __slots__ = (
        "_job",
        "_spent",
        "_weight",
        "base_s",
        "declared",
        "factor",
        "finished",
        "runs_s",
        "told",
    )

    def __init__(self, job: Job, history: History) -> None:
        self._job = job
        past = history.get(job.history_key, {}) if job.history_key else {}
        self.base_s: list[float] = []
        self.declared: list[bool] = []
        self.factor: list[float] = []
        self.finished = [0] * len(job.stages)
        self.runs_s = [0.0] * len(job.stages)
        # `_spent` sums observed ratios, the prior's included.
        self._spent: list[float] = []
        self._weight: list[float] = []
        for stage in job.stages:
            self._begin(stage, past.get(stage.name))
        self.told = list(self.factor)

    def _begin(self, stage: Stage, past: Mapping[str, float] | None) -> None:
        if stage.overrides:
            mean = sum(stage.duration_of(i) for i in range(stage.tasks)) / max(stage.tasks, 1)
        else:
            mean = stage.duration_s
        declared = mean > 0
        base = mean if declared else UNKNOWN_S
        factor, weight = 1.0, FILE_WEIGHT if declared else 0.0
        if past is not None:
            factor = past["run_s"] * self._growth(past.get("input_mb", 0.0)) / base
            weight = HISTORY_WEIGHT
        self.base_s.append(base)
        self.declared.append(declared)
        self.factor.append(factor)
        self._weight.append(weight)
        self._spent.append(factor * weight)

    def _growth(self, input_mb: float) -> float:
        """Return how much more input this run has than the past one; 1 where either is unknown."""
        return self._job.input_mb / input_mb if input_mb > 0 and self._job.input_mb > 0 else 1.0

    def known(self, stage: int) -> bool:
        """Return whether anything but the deliberate over-estimate is known of a stage."""
        return self._weight[stage] > 0

    def duration_s(self, stage: int) -> float:
        """Return the estimated mean duration of a stage's tasks."""
        return self.base_s[stage] * self.factor[stage]

    def observe(
        self, stage: int, declared_s: Sequence[float], runs_s: Sequence[float]
    ) -> tuple[bool, Sequence[float]]:
        """Learn from finished tasks of a stage, one after the other, as each is rounded alone.

        Return whether the belief moved enough to tell others, and by how much with each task.
        """
        self.finished[stage] += len(runs_s)
        base_s = self.base_s[stage]
        all_s, told, tell = self.runs_s[stage], self.told[stage], False
        bound = TELL_ABOVE * told
        spent, weight, factor = self._spent[stage], self._weight[stage], self.factor[stage]
        moved: list[float] = []
        for own_s, run_s in zip(declared_s, runs_s, strict=True):
            all_s += run_s
            spent += run_s / (own_s if own_s > 0 else base_s)
            weight += 1.0
            now = spent / weight
            moved.append(now - factor)
            factor = now
            if abs(factor - told) > bound:
                told, tell, bound = factor, True, TELL_ABOVE * factor
        self.runs_s[stage] = all_s
        self._spent[stage], self._weight[stage] = spent, weight
        self.factor[stage], self.told[stage] = factor, told
        return tell, moved

    def applied(self) -> Job:
        """Return the job as a planner should see it: estimated durations where they differ."""
        if all(self.declared) and all(factor == 1.0 for factor in self.factor):
            return self._job
        stages = []
        for position, stage in enumerate(self._job.stages):
            factor = self.factor[position]
            if factor == 1.0 and self.declared[position]:
                stages.append(stage)
                continue
            overrides = tuple(
                own if own.duration_s is None else replace(own, duration_s=own.duration_s * factor)
                for own in stage.overrides
            )
            base = stage.duration_s if self.declared[position] else self.base_s[position]
            stages.append(replace(stage, duration_s=base * factor, overrides=overrides))
        return replace(self._job, stages=tuple(stages))

    def record(self) -> dict[str, dict[str, float]]:
        """Return what this run adds to the history of its key, as plain data by stage name."""
        return {
            stage.name: {
                "run_s": self.runs_s[position] / self.finished[position],
                "tasks": float(self.finished[position]),
                "input_mb": self._job.input_mb,
            }
            for position, stage in enumerate(self._job.stages)
            if self.finished[position]
        }


def merge_history(history: History, key: str, record: Table) -> Json:
    """Return the history with one more run of a key; the newest run counts for half."""
    merged = {name: {s: dict(p) for s, p in past.items()} for name, past in history.items()}
    stages = merged.setdefault(key, {})
    for name, seen in record.items():
        old = stages.get(name)
        if old is None:
            stages[name] = dict(seen)
            continue
        growth = 1.0
        if old["input_mb"] > 0 and seen["input_mb"] > 0:
            growth = seen["input_mb"] / old["input_mb"]
        stages[name] = {
            "run_s": 0.5 * (old["run_s"] * growth + seen["run_s"]),
            "tasks": old["tasks"] + seen["tasks"],
            "input_mb": seen["input_mb"],
        }
    return merged
