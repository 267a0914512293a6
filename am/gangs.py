"""Gang stages: all of a stage's tasks start together, so they are asked for together.

A stage may be several groups (`am.task_groups`): of other demands, preferences, places in the plan.
To the Resource Manager the asks of one stage that say `gang` are one unit, sent in one message.
"""

from collections.abc import Collection, Sequence

from am.asking import AskTable
from am.progress import WAITING, Progress
from am.task_groups import TaskGroup
from weft.model.ids import ContainerId, NodeId
from weft.model.job import Job
from weft.protocol.messages import AskType, Container


class Gangs:
    """The gang stages of one job; `stages` are their positions."""

    __slots__ = ("_book", "_progress", "stages")

    def __init__(self, job: Job, progress: Progress, book: AskTable) -> None:
        self.stages = tuple(i for i, stage in enumerate(job.stages) if stage.together)
        self._progress = progress
        self._book = book

    def awaits_parents(self, group: TaskGroup) -> bool:
        """Return whether the group is part of a gang of which some task cannot start yet."""
        return group.gang and WAITING in self._progress.stages[group.stage].state

    def hold_back(self) -> None:
        """Show askers a gang whole, or not at all while some of it cannot start."""
        changed = self._progress.changed
        for position in self.stages:
            stage = self._progress.stages[position]
            if not any(group.number in changed for group in stage.groups):
                continue
            if WAITING not in stage.state:
                changed.update((group.number, group) for group in stage.groups)
                continue
            for group in stage.groups:
                changed.pop(group.number, None)
                self._book.retire(group)

    def ask(self) -> None:
        """Ask for what is ready of the gangs that changed, in place of an asker."""
        self.hold_back()
        changed = self._progress.changed
        for group in [group for group in changed.values() if group.gang]:
            del changed[group.number]
            self._book.want(group, AskType.DEFAULT, len(group.ready))

    @property
    def waiting(self) -> bool:
        """Whether a gang was asked for and did not start."""
        stages = self._progress.stages
        return any(
            row is not None and row.wanted > 0
            for position in self.stages
            for group in stages[position].groups
            for row in group.rows
        )

    def spoilt(
        self,
        containers: Sequence[Container],
        avoided: Collection[NodeId],
        ended: Collection[ContainerId],
    ) -> set[int]:
        """Return stages of which not every granted container can be used: then none of them is."""
        found: set[int] = set()
        for container in containers:
            row = self._book.rows.get(container.ask_id)
            useless = container.node_id in avoided or container.container_id in ended
            if useless and row is not None and row.group.gang:
                found.add(row.group.stage)
        return found
