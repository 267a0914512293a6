"""Would a test see it? Mutants of the code that decides: `make mutants`.

A sample of single changes (Cosmic Ray's operators: a comparison, a number, a sign, `and`, `not`, a
loop left out) is put into a copy of the checkout, one at a time, and the tests of that folder are
run. A mutant that no test fails is printed. Kernels run as plain Python (NUMBA_DISABLE_JIT=1).
Results are kept in build/mutants, so that a run that was stopped goes on where it was; the same
seed draws the same mutants from the same code.
"""

import argparse
import contextlib
import difflib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GUARANTEES = "tests/property/test_matchers*.py"
# By folder or file: its tests, the quick ones first.
TESTS: dict[str, tuple[str, ...]] = {
    "rm/match": (
        "tests/golden/test_golden_online.py", "tests/golden/test_am_golden_carbyne.py",
        "tests/scripts/test_match_*.py", "tests/unit/test_graphene_priority.py",
        "tests/scripts/test_rm_reserve.py", "tests/unit/test_carbyne_promise.py", GUARANTEES,
    ),
    "rm/reserve.py": (
        "tests/scripts/test_rm_reserve.py", "tests/scripts/test_match_features.py", GUARANTEES,
    ),
    "rm/ledger": (
        "tests/property/test_rm_ledger.py", "tests/scripts/test_rm_*.py",
        "tests/golden/test_golden_online.py", GUARANTEES,
    ),
    "am/ask": (
        "tests/golden/test_am_golden_*.py", "tests/unit/test_carbyne_*.py",
        "tests/property/test_am_carbyne.py", "tests/property/test_am_holding.py",
        "tests/property/test_cobra_bounds.py",
    ),
    "am/plan": (
        "tests/unit/test_planner_edges.py", "tests/golden/test_golden_plan.py",
        "tests/property/test_board.py", "tests/papers", "tests/property/test_plans.py",
    ),
}  # fmt: skip
# Changes that no run can show: annotations (X | None), decorators, raised types.
LEFT_OUT = ("RemoveDecorator", "ExceptionReplacer", "BitOr", "VariableReplacer", "VariableInserter")
LIMIT_S = 600  # of one mutant: a loop without an end is killed, and counts as seen


class Mutant(NamedTuple):
    """One change of one file."""

    path: str
    operator: str
    occurrence: int
    line: int


def sources() -> list[str]:
    """The files that decide."""
    found: list[str] = []
    for place in TESTS:
        at = ROOT / place
        found += [str(at)] if at.is_file() else [str(p) for p in sorted(at.rglob("*.py"))]
    return [str(Path(p).relative_to(ROOT)) for p in found if Path(p).name != "__init__.py"]


@cache
def places(path: str) -> dict[tuple[int, int], list[Mutant]]:
    """All changes of a file by where they are, in a fixed order."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    wanted = [n for n in sorted(operator_names()) if not any(word in n for word in LEFT_OUT)]
    operators = {name: get_operator(name)() for name in wanted}
    count = dict.fromkeys(operators, 0)
    found: dict[tuple[int, int], list[Mutant]] = {}
    for node in ast_nodes(get_ast((ROOT / path).read_text())):
        for name, operator in operators.items():
            for start, _ in operator.mutation_positions(node):
                one = Mutant(path, name, count[name], start[0])
                found.setdefault(start, []).append(one)
                count[name] += 1
    return found


def sample(count: int, seed: int) -> list[Mutant]:
    """Draw a file by its length, a place in it, a change there; no place twice."""
    rng = random.Random(seed)
    paths = sources()
    weights = [len((ROOT / path).read_text().splitlines()) for path in paths]
    drawn: dict[tuple[str, tuple[int, int]], Mutant] = {}
    for _ in range(20 * count):
        if len(drawn) == count:
            break
        (path,) = rng.choices(paths, weights)
        if places(path):
            at = rng.choice(sorted(places(path)))
            drawn.setdefault((path, at), rng.choice(places(path)[at]))
    return list(drawn.values())


def changed(mutant: Mutant, folder: Path) -> tuple[str, str]:
    """The file of a copy before and after."""
    from cosmic_ray.mutating import MutationVisitor
    from cosmic_ray.plugins import get_operator

    before = (folder / mutant.path).read_text()
    after = MutationVisitor.mutate_code(before, get_operator(mutant.operator)(), mutant.occurrence)
    return before, after or before


def tests_of(path: str, folder: Path) -> list[str]:
    """The test files for a source, those that exist."""
    place = next(key for key in TESTS if path.startswith(key))
    found: list[str] = []
    for pattern in TESTS[place]:
        found += sorted(str(p) for p in folder.glob(pattern) if str(p) not in found)
    return found


def run_tests(folder: Path, files: list[str]) -> int:
    """Run tests in a child that has all but the product loaded; pytest's exit code, -1: no end."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            import pytest

            os.setsid()
            os.chdir(folder)
            sys.path.insert(0, str(folder))
            sys.modules.pop("tools", None)
            out = open(os.devnull, "w")  # noqa: SIM115
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            code = int(
                pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files])
            )
        finally:
            os._exit(code)
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of what is tracked, as it is now."""
    with tempfile.TemporaryDirectory(prefix="weft-mutants-") as name:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for path in filter(None, listed.split("\0")):
            if (ROOT / path).is_file():
                (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, Path(name) / path)
        yield Path(name)


def preload() -> None:
    """Load what tests need of others once, before the copies of this process are made."""
    sys.path[:] = [p for p in sys.path if p and Path(p).resolve() != ROOT]
    for name in ("numba", "hypothesis", "hypothesis.extra.numpy", "networkx", "pytest", "yaml"):
        with contextlib.suppress(ImportError):
            __import__(name)


def judged(mutant: Mutant, folder: Path) -> dict[str, Any]:
    """Put one mutant in, run its tests, take it out; the row that is kept."""
    before, after = changed(mutant, folder)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    target, start_s = folder / mutant.path, time.monotonic()
    target.write_text(after)
    try:
        code = run_tests(folder, tests_of(mutant.path, folder))
    finally:
        target.write_text(before)
    diff = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    took_s = round(time.monotonic() - start_s, 1)
    return {**mutant._asdict(), "killed": code != 0, "code": code, "s": took_s, "diff": diff}


def show(rows: list[dict[str, Any]]) -> str:
    """Survivors with their change, and the rate."""
    out = io.StringIO()
    for row in rows:
        if not row["killed"]:
            print(f"\n{row['path']}:{row['line']} ({row['operator']})", file=out)
            print("\n".join(f"    {line}" for line in row["diff"]), file=out)
    killed = sum(row["killed"] for row in rows)
    share = 100 * killed / max(len(rows), 1)
    print(f"\n{killed} of {len(rows)} mutants killed ({share:.0f} %)", file=out)
    return out.getvalue()


def main(arguments: list[str] | None = None) -> int:
    """Judge a sample for so many minutes; print survivors. Exits 1 where the tests fail as is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="paths that begin so")
    parser.add_argument("--kept", type=Path, help="results (build/mutants/SEED.jsonl)")
    args = parser.parse_args(arguments)
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "WEFT_GOLDEN": ""}
    kept: Path = (args.kept or ROOT / "build" / "mutants" / f"{args.seed}.jsonl").resolve()
    kept.parent.mkdir(parents=True, exist_ok=True)
    chosen = [m for m in sample(args.count, args.seed) if m.path.startswith(args.only)]
    known = {}
    if kept.exists():
        rows = [json.loads(line) for line in kept.read_text().splitlines()]
        known = {(r["path"], r["operator"], r["occurrence"], r["line"]): r for r in rows}
    give_up = time.monotonic() + 60 * args.minutes
    preload()
    with copied() as folder, kept.open("a") as file:
        for mutant in chosen:
            if tuple(mutant) in known or time.monotonic() > give_up:
                continue
            row = known[tuple(mutant)] = judged(mutant, folder)
            file.write(json.dumps(row) + "\n")
            file.flush()
            word = "killed" if row["killed"] else "SURVIVED"
            print(f"{word} {row['s']:6.1f} s {row['path']}:{row['line']}", flush=True)
    print(show([known[tuple(m)] for m in chosen if tuple(m) in known]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
