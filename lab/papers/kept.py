"""Runs of a paper's figures, kept in one file: what is there, what is missing, what it costs."""

import fcntl
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, Protocol

from numba.core.event import Listener, install_listener

from lab.studies.grid import read_rows
from lab.studies.trials import Rows, Trial
from weft.model.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


class Runs(Protocol):
    """What a figure says of its runs: cases by name, one run a seed, kept under `study`."""

    @property
    def study(self) -> str:
        """The name that their rows share."""
        ...

    @property
    def cases(self) -> Mapping[str, Trial]:
        """Runs of one seed each, by name."""
        ...

    @property
    def guess_s(self) -> float:
        """Processor seconds of a run before any was kept."""
        ...

    @property
    def seeds_max(self) -> int:
        """Number of seeds that there can be."""
        ...


Shown = Callable[[int, int, str], None]


class Kept:
    """The rows of a paper, kept in a file."""

    def __init__(self, path: Path, seeds: int) -> None:
        self.path = path
        self.seeds = seeds
        self.known = {row["key"]: row for row in read_rows(path) if _is_number(row.get("cpu_s"))}

    def keys(self, figure: Runs) -> dict[str, tuple[str, int]]:
        """Return case and seed of each run of a figure, by key; seeds outermost."""
        seeds = range(min(self.seeds, figure.seeds_max))
        return {
            f"{figure.study}/{case}/{seed}": (case, seed) for seed in seeds for case in figure.cases
        }

    def missing(self, figures: Sequence[Runs]) -> dict[str, Callable[[], Mapping[str, Any]]]:
        """Return what has no row yet, by key."""
        found: dict[str, Callable[[], Mapping[str, Any]]] = {}
        for figure in figures:
            for key, (case, seed) in self.keys(figure).items():
                if key not in self.known:
                    found.setdefault(key, _trial(figure.cases[case], case, seed))
        return found

    def cost_s(self, figures: Sequence[Runs]) -> float:
        """Return processor seconds that the missing runs take.

        The median of kept ones of the case, else of the figure, else a guess. Compiling kernels,
        once a checkout, is not in it.
        """
        missing: dict[str, float] = {}
        for figure in figures:
            spent: dict[str, list[float]] = {}
            for key, (case, _) in self.keys(figure).items():
                if key in self.known:
                    spent.setdefault(case, []).append(float(self.known[key]["cpu_s"]))
            of_all = [each for found in spent.values() for each in found]
            for key, (case, _) in self.keys(figure).items():
                if key not in self.known:
                    near = spent.get(case) or of_all or [figure.guess_s]
                    missing.setdefault(key, median(near))
        return sum(missing.values())

    def run(self, figures: Sequence[Runs], shown: Shown = lambda done, of, key: None) -> None:
        """Run what is missing; each row is written as it ends.

        Raises InputError where another process does that to the same file.
        """
        missing = self.missing(figures)
        commit = commit_of(ROOT)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(str(self.path), "another weft paper writes to it") from None
            self._mend(file)
            for done, (key, make) in enumerate(missing.items()):
                shown(done, len(missing), key)
                row = {"key": key, **make(), "commit": commit}
                file.write(json.dumps(row, sort_keys=True).encode() + b"\n")
                file.flush()
                self.known[key] = row

    def _mend(self, file: BinaryIO) -> None:
        """Take out a last line that was cut off: the next row would be glued to it."""
        data = self.path.read_bytes()
        if not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)

    def rows(self, figure: Runs) -> Rows:
        """Return rows by case, in the order of the seeds; seeds without all cases are left out."""
        keys = self.keys(figure)
        seeds = [
            seed
            for seed in range(min(self.seeds, figure.seeds_max))
            if all(k in self.known for k, (_, s) in keys.items() if s == seed)
        ]
        return {
            case: [self.known[f"{figure.study}/{case}/{seed}"] for seed in seeds]
            for case in figure.cases
        }


def _trial(trial: Trial, case: str, seed: int) -> Callable[[], Mapping[str, Any]]:
    def run() -> Mapping[str, Any]:
        start_s = time.process_time()
        with install_listener("numba:compile", Compiling()) as compiling:
            found = dict(trial(seed))
        spent_s = time.process_time() - start_s - compiling.spent_s
        return {"case": case, "seed": seed, "cpu_s": round(spent_s, 2), **found}

    return run


class Compiling(Listener):
    """Processor seconds that went into compiling kernels: a new checkout's first runs do that."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._depth = 0
        self._start_s = 0.0

    def on_start(self, event: object) -> None:
        """Note that a kernel, or one that it calls, begins to compile."""
        self._depth += 1
        if self._depth == 1:
            self._start_s = time.process_time()

    def on_end(self, event: object) -> None:
        """Count the time of the outermost kernel only."""
        self._depth -= 1
        if self._depth == 0:
            self.spent_s += time.process_time() - self._start_s


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def commit_of(folder: Path) -> str:
    """Return the commit of a checkout, `+` where it was changed since; empty without one."""

    def said(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = said("rev-parse", "--short", "HEAD")
    return commit + (
        "+" if commit and said("status", "--porcelain", "--untracked-files=no") else ""
    )
