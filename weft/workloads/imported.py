"""What every importer answers: the jobs, what it could not use, and how many rows it dropped."""

from collections import Counter
from dataclasses import dataclass, field

from weft.job import Job


@dataclass(slots=True)
class Imported:
    """Jobs read from files of one format; nothing is dropped without being counted here."""

    jobs: list[Job] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # one line each, naming file and reason
    dropped: Counter[str] = field(default_factory=Counter)  # reason -> rows
