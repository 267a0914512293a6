"""Gang stages: all of a stage's tasks start together, so they are asked for together.

A stage may be several lots (`am.lots`): tasks of other demands, preferences or places in the plan.
To the Resource Manager the asks of one stage that say `gang` are one unit, told in one message.
"""

from collections.abc import Collection, Sequence

from am.asking import AskBook
from am.lots import Lot
from am.progress import WAITING, Progress
from weft.ids import ContainerId, NodeId
from weft.job import Job
from weft.messages import AskType, Container


class Gangs:
    """The gang stages of one job; `stages` are their positions."""

    __slots__ = ("_book", "_progress", "stages")

    def __init__(self, job: Job, progress: Progress, book: AskBook) -> None:
        self.stages = tuple(i for i, stage in enumerate(job.stages) if stage.gang)
        self._progress = progress
        self._book = book

    def awaits_parents(self, lot: Lot) -> bool:
        """Return whether the lot is part of a gang of which some task cannot start yet."""
        return lot.gang and WAITING in self._progress.stages[lot.stage].state

    def hold_back(self) -> None:
        """Show askers a gang whole, or not at all while some of it cannot start."""
        changed = self._progress.changed
        for position in self.stages:
            stage = self._progress.stages[position]
            if not any(lot.number in changed for lot in stage.lots):
                continue
            if WAITING not in stage.state:
                changed.update((lot.number, lot) for lot in stage.lots)
                continue
            for lot in stage.lots:
                changed.pop(lot.number, None)
                self._book.retire(lot)

    def ask(self) -> None:
        """Ask for what is ready of the gangs that changed, in place of an asker."""
        self.hold_back()
        changed = self._progress.changed
        for lot in [lot for lot in changed.values() if lot.gang]:
            del changed[lot.number]
            self._book.want(lot, AskType.DEFAULT, len(lot.ready))

    @property
    def waiting(self) -> bool:
        """Whether a gang was asked for and did not start."""
        stages = self._progress.stages
        return any(
            row is not None and row.wanted > 0
            for position in self.stages
            for lot in stages[position].lots
            for row in lot.rows
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
            if useless and row is not None and row.lot.gang:
                found.add(row.lot.stage)
        return found
