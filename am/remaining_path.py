"""The longest path of what is left of a job, by stage: how short a job is (Carbyne section 5.1)."""

from collections.abc import Sequence

from am.progress import StageProgress
from weft.job import Job


class RemainingPath:
    """A stage that is not done counts with the believed duration of its longest task.

    Worked out again only when a stage was completed or a belief moved: O(stages), never tasks.
    """

    __slots__ = ("_children", "_key", "_longest_s", "_order", "_value")

    def __init__(self, job: Job, base_s: Sequence[float]) -> None:
        self._longest_s = [
            max([stage.duration_of(task) for task in range(stage.tasks)], default=0.0)
            if stage.overrides
            else base
            for stage, base in zip(job.stages, base_s, strict=True)
        ]
        self._children: list[list[int]] = [[] for _ in job.stages]
        for child in range(len(job.stages)):
            for parent, _ in job.parents_of(child):
                self._children[parent].append(child)
        self._order = list(reversed(job.topological_order()))
        self._key: tuple[object, ...] = ()
        self._value = 0.0

    def longest_s(self, stages: Sequence[StageProgress], factor: Sequence[float]) -> float:
        """Return the longest remaining path, s; `factor` is belief over declaration, by stage."""
        key = (sum(stage.complete for stage in stages), *factor)
        if key != self._key:
            self._key = key
            tail = [0.0] * len(stages)
            for at in self._order:
                own = 0.0 if stages[at].complete else self._longest_s[at] * factor[at]
                tail[at] = own + max([tail[child] for child in self._children[at]], default=0.0)
            self._value = max(tail, default=0.0)
        return self._value
