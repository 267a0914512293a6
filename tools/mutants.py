"""Would a test see it? Mutants of the code that decides: `make mutants`.

A sample of single changes (Cosmic Ray's operators: a comparison, a number, a sign, `and`, `not`, a
loop left out) is judged, each in a fork of one process that has a copy of the checkout and its
tests loaded (tools/mutants_judge.py). The first run learns which lines each test runs, which takes
some minutes; a mutant meets only the tests that run its line, the quick ones first, for at most
20 s. A mutant that no test fails is printed. Kernels run as plain Python (NUMBA_DISABLE_JIT=1).
Results are kept in build/mutants, so that a run that was stopped goes on where it was. A seed draws
lines of code, not numbers of lines: a change elsewhere leaves the sample as it is, and only mutants
of files that changed are judged again.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tools.mutants_judge import Judge

ROOT = Path(__file__).resolve().parents[1]
# The code that decides.
DECIDES = ("rm/match", "rm/placing", "rm/ledger", "am/ask", "am/plan")
# Which of these runs a changed line is learned by running each once.
TESTS = (
    "tests/golden/test_*.py",
    "tests/scripts/test_[amr]*.py",
    "tests/scripts/test_takeover.py",
    "tests/unit/test_*.py",
    "tests/papers/test_*.py",
    "tests/property/test_*.py",
)
USES = re.compile(r"^\s*(from|import) (rm|am|sim|testkit)\b", re.MULTILINE)
# Changes that no run can show: annotations (X | None), decorators, raised types.
LEFT_OUT = ("RemoveDecorator", "ExceptionReplacer", "BitOr", "VariableReplacer", "VariableInserter")
# The CPU time that one mutant's tests may take.
BUDGET_S = 20.0


class Mutant(NamedTuple):
    """One change of one file; `name` stays as long as its line does."""

    path: str
    operator: str
    occurrence: int
    line: int
    name: str


def sources() -> list[str]:
    """Return the files that decide."""
    found: list[str] = []
    for place in DECIDES:
        at = ROOT / place
        found += [str(at)] if at.is_file() else [str(p) for p in sorted(at.rglob("*.py"))]
    return [str(Path(p).relative_to(ROOT)) for p in found if Path(p).name != "__init__.py"]


@cache
def source(path: str) -> str:
    """Return the text of a file."""
    return (ROOT / path).read_text()


def mark(path: str) -> str:
    """Return a digest of a file's text."""
    return hashlib.sha256(source(path).encode()).hexdigest()[:16]


@cache
def names(path: str) -> list[str]:
    """Return every line by its text, and by which of the identical ones it is."""
    seen: Counter[str] = Counter()
    found = []
    for line in source(path).splitlines():
        found.append(f"{path}|{line.strip()}|{seen[line.strip()]}")
        seen[line.strip()] += 1
    return found


@cache
def places(path: str) -> dict[tuple[int, int], list[Mutant]]:
    """Return all changes of a file by where they are (line, column), in a fixed order."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    wanted = [n for n in sorted(operator_names()) if not any(word in n for word in LEFT_OUT)]
    operators = {name: get_operator(name)() for name in wanted}
    count = dict.fromkeys(operators, 0)
    lines, found = source(path).splitlines(), dict[tuple[int, int], list[Mutant]]()
    left_out = unseen(path)
    for node in ast_nodes(get_ast(source(path))):
        for operator, made in operators.items():
            for start, _ in made.mutation_positions(node):
                line, column = start
                if not any(low <= start < high for low, high in left_out):
                    text = lines[line - 1]
                    column -= len(text) - len(text.lstrip())
                    here = found.setdefault(start, [])
                    name = f"{names(path)[line - 1]}|{column}|{operator}|{len(here)}"
                    here.append(Mutant(path, operator, count[operator], line, name))
                count[operator] += 1
    return found


@cache
def unseen(path: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return what no run looks at, from (line, column) to (line, column).

    Decorators: `frozen` and `slots` of a dataclass are for people and memory. Arguments of `direct`
    but the first: examples of types for the compiler.
    """
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(source(path))):
        found += getattr(node, "decorator_list", ())
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "direct":
            found += node.args[1:]
    return [
        ((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0))
        for one in found
    ]


def chance(*words: object) -> float:
    """Return a number in (0, 1) that these words draw."""
    digest = hashlib.sha256("|".join(map(str, words)).encode()).digest()
    return (int.from_bytes(digest[:7]) + 0.5) / 2**56


def sample(count: int, seed: int, only: tuple[str, ...] = ("",)) -> list[Mutant]:
    """Draw places without replacement, a file's by its length, and one change of each.

    Of files whose path begins as one of `only` does.

    A place's turn is its own (Efraimidis and Spirakis, 2006): others that come and go leave it.
    """
    turns: list[tuple[float, Mutant]] = []
    for path in filter(lambda path: path.startswith(only), sources()):
        weight = len(source(path).splitlines()) / max(len(places(path)), 1)
        for changes in places(path).values():
            one = min(changes, key=lambda mutant: chance(seed, mutant.name))
            place = changes[0].name.rsplit("|", 2)[0]
            turns.append((-math.log(chance(seed, place)) / weight, one))
    return [mutant for _, mutant in sorted(turns)[:count]]


def changed(mutant: Mutant, folder: Path) -> tuple[str, str]:
    """Return the file of a copy before and after."""
    from cosmic_ray.mutating import MutationVisitor
    from cosmic_ray.plugins import get_operator

    before = (folder / mutant.path).read_text()
    after = MutationVisitor.mutate_code(before, get_operator(mutant.operator)(), mutant.occurrence)
    return before, after or before


def nearby(text: str, line: int) -> Iterator[range]:
    """Yield the line, its statement, its function; the whole file for what is in no function."""
    yield range(line, line + 1)
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    around.sort(key=lambda node: (node.end_lineno or node.lineno) - node.lineno)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in around:
        if not isinstance(node, ast.ClassDef):
            yield range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, functions):
            return
    yield range(1, len(text.splitlines()) + 1)


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """Yield a copy of what is tracked, as it is now."""
    with tempfile.TemporaryDirectory(prefix="weft-mutants-") as name:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for path in filter(None, listed.split("\0")):
            if (ROOT / path).is_file():
                (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, Path(name) / path)
        yield Path(name)


def tests(folder: Path) -> list[str]:
    """Return the test files that use the cores."""
    found = {p for pattern in TESTS for p in folder.glob(pattern)}
    return sorted(str(p) for p in found if USES.search(p.read_text()))


def judged(judge: "Judge", mutant: Mutant, budget_s: float, first: str) -> dict[str, Any]:
    """Judge one mutant by the tests that run its line, one of them `first`; return its row."""
    before, after = changed(mutant, judge.folder)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    diff = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    if not compiles(after):
        # Nobody could start this mutant.
        verdict = {"killed": True, "by": "", "tests": 0, "s": 0.0}
        return {**mutant._asdict(), **verdict, **told_of(mutant, 0, diff)}
    choices = (judge.tests_of(mutant.path, near) for near in nearby(before, mutant.line))
    tests = next((found for found in choices if found), [])
    tests.sort(key=lambda test: test != first)
    found = judge.judge(mutant.path, after, tests, budget_s)
    return {**mutant._asdict(), **found._asdict(), **told_of(mutant, len(tests), diff)}


def told_of(mutant: Mutant, tests: int, diff: list[str]) -> dict[str, Any]:
    """Return what a row says besides the verdict."""
    return {"mark": mark(mutant.path), "of": tests, "diff": diff}


def compiles(text: str) -> bool:
    """Return whether a file is Python: the operators take `/` between parameters for a sign."""
    try:
        compile(text, "", "exec")
    except SyntaxError:
        return False
    return True


def in_the_page(row: dict[str, Any]) -> str:
    """Return how docs/mutants.md names a change."""
    before, after = (
        " ".join(line[1:].strip() for line in row["diff"] if line[0] == sign) for sign in "-+"
    )
    return f"`{before}` to `{after}`".replace("|", "\\|")


def show(rows: list[dict[str, Any]], of: int, page: str) -> str:
    """Return survivors that the page gives no reason for, with their change, and the rates."""
    out = io.StringIO()
    alive = [row for row in rows if not row["killed"]]
    new = [row for row in alive if in_the_page(row) not in page]
    for row in new:
        where = f"{row['path']}:{row['line']} ({row['operator']})"
        print(f"\n{where}, {row['tests']} of {row['of']} tests", file=out)
        print("\n".join(f"    {line}" for line in row["diff"]), file=out)
    killed, told = len(rows) - len(alive), len(alive) - len(new)
    share = 100 * killed / max(len(rows), 1)
    print(f"\n{killed} of {len(rows)} mutants killed ({share:.0f} %)", file=out)
    print(f"{told} others are in docs/mutants.md, {len(new)} are not", file=out)
    if len(rows) < of:
        print(f"{of - len(rows)} were not judged: run it again", file=out)
    return out.getvalue()


def main(arguments: list[str] | None = None) -> int:
    """Judge a sample for so many minutes; print survivors. Exits 1 where the tests fail as is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[""], help="paths that begin so")
    parser.add_argument("--tests", default="", help="only test files whose path has this")
    parser.add_argument("--again", action="store_true", help="judge survivors of before again")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="CPU seconds a mutant")
    parser.add_argument("--kept", type=Path, help="results (build/mutants/SEED.jsonl)")
    args = parser.parse_args(arguments)
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "WEFT_GOLDEN": "", "WEFT_DATA": ""}
    kept: Path = (args.kept or ROOT / "build" / "mutants" / f"{args.seed}.jsonl").resolve()
    kept.parent.mkdir(parents=True, exist_ok=True)
    chosen = sample(args.count, args.seed, tuple(args.only))
    known = {}
    if kept.exists():
        rows = [json.loads(line) for line in kept.read_text().splitlines()]
        known = {row["name"]: row for row in rows if "name" in row}

    def work(judge: "Judge") -> None:
        for row in known.values():
            if row["killed"] and row["by"]:
                judge.kills[row["by"]] = judge.kills.get(row["by"], 0) + 1
        judge.record(kept.parent / "lines.json", lambda text: print(text, flush=True))
        give_up = time.monotonic() + 60 * args.minutes
        for mutant in chosen:
            old = known.get(mutant.name)
            holds = old is not None and old["mark"] == mark(mutant.path)
            still = old if holds else None
            done = still and (still["killed"] or not args.again)
            if done or time.monotonic() > give_up:
                continue
            first = old["by"] if old else ""
            row = known[mutant.name] = judged(judge, mutant, args.budget, first)
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
            word = "killed" if row["killed"] else "SURVIVED"
            print(f"{word} {row['s']:6.1f} s {row['path']}:{row['line']} {row['by']}", flush=True)

    with copied() as folder:
        from tools.mutants_judge import session

        files = [path for path in tests(folder) if args.tests in path]
        session(folder, files, sources(), work)
    rows = [known[m.name] for m in chosen if m.name in known]
    rows = [row for row in rows if row["mark"] == mark(row["path"])]
    print(show(rows, len(chosen), (ROOT / "docs" / "mutants.md").read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
