"""What every importer answers: the jobs, what it could not use, and how many rows it dropped."""

from collections import Counter
from dataclasses import dataclass, field

from weft.model.job import Job

_FIRST = " (the first one)"


@dataclass(slots=True)
class Imported:
    """Jobs read from files of one format; nothing is dropped without being counted here.

    `warnings` are one line each, naming file and reason; `dropped` counts rows by reason.
    """

    jobs: list[Job] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    def drop(self, reason: str, where: str, rows: int = 1) -> None:
        """Count dropped rows; the first of each reason is shown as a warning."""
        if reason not in self.dropped:
            self.warnings.append(f"{where}: {reason}{_FIRST}")
        self.dropped[reason] += rows

    def why(self) -> str:
        """Return the first row that was dropped, with its place; else the first warning."""
        first = next((each for each in self.warnings if each.endswith(_FIRST)), "")
        return first.removesuffix(_FIRST) or next(iter(self.warnings), "")
