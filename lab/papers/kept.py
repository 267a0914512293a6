"""Runs of a paper's figures, kept in one file: what is there, what is missing, what it costs.

A row is kept by the digest of all that decides it (`lab.papers.digest`) and its seed. It is a
result where this code has the same digest, and it was made by a commit of this history without
changes: nobody could make it again otherwise.
"""

import fcntl
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, Protocol

from numba.core.event import Listener, install_listener

from lab.papers.digest import Case
from lab.studies.grid import read_rows
from lab.studies.trials import Rows
from weft.model.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


class Runs(Protocol):
    """What a figure says of its runs: cases by name, one run a seed."""

    @property
    def cases(self) -> Mapping[str, Case]:
        """What is run for each seed, by name."""
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


class History:
    """The commits of a checkout; a package without one takes rows at their word."""

    def __init__(self, folder: Path = ROOT) -> None:
        self._folder = folder
        self._has = cache(self._asked)
        whole = self._said("rev-parse", "--is-shallow-repository") == "false"
        # A package may be installed inside of another repository.
        own = bool(self._said("ls-files", "--", "lab/papers/kept.py"))
        self.is_known = whole and own

    def _git(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(self._folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _said(self, *words: str) -> str:
        try:
            return self._git(*words).stdout.strip()
        except OSError:
            return ""

    def commit(self) -> str:
        """Return the commit that is checked out, `+` where code was changed since."""
        if not self.is_known:
            return ""
        changed = self._said("status", "--porcelain", "--", "*.py")
        return self._said("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")

    def has(self, commit: str) -> bool:
        """Return whether a row of a commit can be made again from this history."""
        return self._has(commit)

    def _asked(self, commit: str) -> bool:
        if not self.is_known:
            return not commit.endswith("+")
        if not commit or commit.endswith("+"):
            return False
        return self._git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


class Kept:
    """The rows of a paper, kept in a file: `known` are those that may be shown, by key."""

    def __init__(self, path: Path, seeds: int, history: History | None = None) -> None:
        self.path = path
        self.seeds = seeds
        self.history = history or History()
        self.read = [row for row in read_rows(path) if _is_number(row.get("cpu_s"))]
        self.known = {r["key"]: r for r in self.read if self.history.has(str(r.get("commit", "")))}
        self._digests: dict[int, str] = {}

    def key(self, case: Case, seed: int) -> str:
        """Return what the row of a case and a seed is kept by."""
        if id(case) not in self._digests:
            self._digests[id(case)] = case.digest()
        return f"{self._digests[id(case)]}/{seed}"

    def wanted(self, figure: Runs) -> dict[str, tuple[str, int]]:
        """Return case and seed of each run of a figure, by key; seeds outermost."""
        seeds = range(min(self.seeds, figure.seeds_max))
        return {
            self.key(case, seed): (name, seed)
            for seed in seeds
            for name, case in figure.cases.items()
        }

    def missing(self, figures: Sequence[Runs]) -> dict[str, tuple[Case, int]]:
        """Return what has no row, by key; seeds outermost."""
        found: dict[str, tuple[Case, int]] = {}
        for figure in figures:
            for key, (name, seed) in self.wanted(figure).items():
                if key not in self.known:
                    found.setdefault(key, (figure.cases[name], seed))
        return dict(sorted(found.items(), key=lambda each: each[1][1]))

    def cost_s(self, figures: Sequence[Runs]) -> float:
        """Return processor seconds that the missing runs take.

        The median of kept ones of the case, be they of other code, else of the figure, else a
        guess. Compiling kernels, once a checkout, is not in it.
        """
        spent: dict[str, list[float]] = {}
        for row in self.read:
            spent.setdefault(str(row.get("of")), []).append(float(row["cpu_s"]))
        missing: dict[str, float] = {}
        for figure in figures:
            of_all = [s for case in figure.cases.values() for s in spent.get(str(case), ())]
            for key, (name, _) in self.wanted(figure).items():
                if key not in self.known:
                    near = spent.get(str(figure.cases[name])) or of_all or [figure.guess_s]
                    missing.setdefault(key, median(near))
        return sum(missing.values())

    def run(self, figures: Sequence[Runs], shown: Shown = lambda done, of, key: None) -> None:
        """Run what is missing; each row is written as it ends.

        Raises InputError where the checkout has changed code, as rows of it could not be made
        again, and where another process does that to the same file.
        """
        missing = self.missing(figures)
        commit = self.history.commit()
        if missing and commit.endswith("+"):
            raise InputError("the checkout", "has changed code; commit it, as rows name a commit")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(str(self.path), "another weft paper writes to it") from None
            self._mend(file)
            for done, (key, (case, seed)) in enumerate(missing.items()):
                shown(done, len(missing), f"{case}, seed {seed}")
                row = {"key": key, "of": str(case), **_made(case, seed), "commit": commit}
                file.write(json.dumps(row, sort_keys=True).encode() + b"\n")
                file.flush()
                self.known[key] = row
                self.read.append(row)

    def _mend(self, file: BinaryIO) -> None:
        """Take out a last line that was cut off, and rows that others took the place of."""
        rows = list(read_rows(self.path))
        last = {(row.get("of"), row.get("seed")): row["key"] for row in rows}
        lines = [
            json.dumps(row, sort_keys=True).encode() + b"\n"
            for row in rows
            if last[row.get("of"), row.get("seed")] == row["key"]
        ]
        if (data := b"".join(lines)) != self.path.read_bytes():
            file.truncate(0)
            file.write(data)
            file.flush()

    def rows(self, figure: Runs) -> Rows:
        """Return rows by case, in the order of the seeds; seeds without all cases are left out."""
        wanted = self.wanted(figure)
        seeds = [
            seed
            for seed in range(min(self.seeds, figure.seeds_max))
            if all(key in self.known for key, (_, s) in wanted.items() if s == seed)
        ]
        return {
            name: [self.known[self.key(case, seed)] for seed in seeds]
            for name, case in figure.cases.items()
        }


def _made(case: Case, seed: int) -> Mapping[str, Any]:
    start_s = time.process_time()
    with install_listener("numba:compile", Compiling()) as compiling:
        found = dict(case(seed))
    spent_s = time.process_time() - start_s - compiling.spent_s
    return {"seed": seed, "cpu_s": round(spent_s, 2), **found}


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
