"""One pytest session that has collected everything and forks for each question put to it.

First it runs every test once in a fork of its own and keeps which lines of the code that decides
the test runs, and its CPU time. Then it judges mutants: a fork exchanges the code of the changed
function in place and runs the tests that execute the changed line, the quick ones first, until
one fails. A change of a module's own level (a constant, a default value) has the product's modules
loaded anew in the fork. Nothing else is loaded or collected twice, so that a mutant costs a
fraction of a second where a test sees it.
"""

import contextlib
import gc
import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

HYPOTHESIS_EXAMPLES_MAX = 12
# CPU time: a test that needs longer as plain Python is left out.
RECORD_LIMIT_S = 5.0
# A fork that uses no CPU for so long waits for what never comes.
WAIT_LIMIT_S = 120.0
LOOK_S = 0.2
MEMORY_BYTES = 6 << 30
PASSED, FAILED = 0, 1
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", "-s")


class Seen(NamedTuple):
    """What a test ran of the code that decides."""

    cpu_s: float
    lines: dict[str, list[int]]


class Verdict(NamedTuple):
    """killed: some test failed or found no end; by: its id; tests: how many were run."""

    killed: bool
    by: str
    tests: int
    s: float


def asleep(process: int) -> bool:
    """Return whether a process waits for an event (neither ready to run, stopped nor gone)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    return False


def heard(child: int, reader: int) -> tuple[bytes, int]:
    """Read what a fork tells until it ends, and its status; end it where it only waits.

    Only looks that find it asleep count as waiting, not the time that a busy machine keeps it from
    running or that it is stopped: a verdict must not depend on what else runs.
    """
    told, waited_s = b"", 0.0
    while waited_s < WAIT_LIMIT_S:
        if select.select([reader], [], [], LOOK_S)[0]:
            part = os.read(reader, 1 << 16)
            told += part
            if not part:
                return told, os.waitpid(child, 0)[1]
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            # What its tests left behind still has the pipe.
            return told, status
        waited_s = waited_s + LOOK_S if asleep(child) else 0.0
    os.killpg(child, signal.SIGKILL)
    return told, os.waitpid(child, 0)[1]


def forked(body: Callable[[Callable[[Any], None]], None], limit_s: float) -> tuple[int, list[Any]]:
    """Run a body in a fork for at most `limit_s` of CPU time.

    Returns its exit code (negative: a signal) and what it told.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            os.close(reader)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
            with os.fdopen(writer, "w") as out:

                def tell(row: Any) -> None:
                    out.write(json.dumps(row) + "\n")
                    out.flush()

                body(tell)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    told, status = heard(child, reader)
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        # Its tests may have left processes behind.
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status), [json.loads(row) for row in told.splitlines()]


def few_examples(item: pytest.Item) -> None:
    """Let a property draw few examples, the same each time."""
    from hypothesis import HealthCheck, settings

    def fewer(given: settings) -> settings:
        return settings(
            given,
            max_examples=min(HYPOTHESIS_EXAMPLES_MAX, given.max_examples),
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )

    test = getattr(item, "obj", None)
    inner: Any = getattr(test, "__func__", test)
    if hasattr(inner, "_hypothesis_internal_use_settings"):
        inner._hypothesis_internal_use_settings = fewer(inner._hypothesis_internal_use_settings)
    elif hasattr(inner, "hypothesis"):
        inner._hypothesis_internal_use_settings = fewer(settings.default or settings())
    cls: Any = getattr(item, "cls", None)
    if isinstance(getattr(cls, "settings", None), settings):
        cls.settings = fewer(cls.settings)


def run_item(item: pytest.Item) -> bool:
    """Run one test with its fixtures; return whether it passed."""
    from _pytest.runner import runtestprotocol

    item.session.shouldfail = item.session.shouldstop = False
    return all(report.passed for report in runtestprotocol(item, nextitem=None, log=False))


def code_tree(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within it, in the order of the source."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from code_tree(const)


def _own(code: CodeType) -> tuple[Any, ...]:
    """Return what a code object says without those within it."""
    consts = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars


def exchanged(before: str, after: str, name: str) -> list[tuple[CodeType, CodeType]] | None:
    """Return pairs of functions' code that differ; None where the module must be loaded anew."""
    old = list(code_tree(compile(before, name, "exec")))
    new = list(code_tree(compile(after, name, "exec")))
    if [c.co_qualname for c in old] != [c.co_qualname for c in new]:
        return None
    # Code of functions has this flag (CO_OPTIMIZED); code of modules and class bodies lacks it.
    optimized = 1
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if _own(a) != _own(b)]
    if any(not a.co_flags & optimized for a, _ in pairs):
        return None
    return pairs


def exchange(before: str, after: str, name: str) -> bool:
    """Put changed code into the functions that live; False where that cannot be done."""
    pairs = exchanged(before, after, name)
    if not pairs:
        return False
    live: dict[tuple[str, int], list[FunctionType]] = {}
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename == name:
            key = (found.__code__.co_qualname, found.__code__.co_firstlineno)
            live.setdefault(key, []).append(found)
    for a, b in pairs:
        functions = live.get((a.co_qualname, a.co_firstlineno))
        if not functions or "<locals>" in a.co_qualname:
            return False
        for function in functions:
            function.__code__ = b
    return True


class _Changed(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):  # type: ignore[misc]
    """Loads one file with other text."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=self.path)

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")


class Judge:
    """Answers for a collected session."""

    def __init__(self, folder: Path, watched: list[str], items: dict[str, pytest.Item]) -> None:
        self.folder, self.watched, self.items = folder, watched, items
        self.seen: dict[str, Seen] = {}
        # `sound` says whether a test that failed passes without a change.
        self.sound: dict[str, bool] = {}
        # Each test has met so many mutants, and killed so many.
        self.tries: dict[str, int] = {}
        self.kills: dict[str, int] = {}

    def record(self, kept: Path, say: Callable[[str], None]) -> None:
        """Learn what each test runs.

        Where neither the test's file nor any file that it ran has changed, that is known from the
        last time.
        """
        rows = json.loads(kept.read_text()) if kept.exists() else {}
        digest = cache(lambda path: hashlib.sha256((self.folder / path).read_bytes()).hexdigest())
        fresh = 0
        for number, (name, item) in enumerate(self.items.items()):
            old = rows.get(name, {"marks": {"": ""}})
            if all((self.folder / p).is_file() and digest(p) == m for p, m in old["marks"].items()):
                continue
            row = self._recorded(item)
            files = [name.split("::")[0], *row["lines"]]
            rows[name] = {"marks": {path: digest(path) for path in files}, **row}
            fresh += 1
            if fresh % 20 == 0:
                say(f"{number + 1} of {len(self.items)} tests recorded")
                kept.write_text(json.dumps(rows))
        kept.write_text(json.dumps(rows))
        for name in self.items:
            if rows[name]["passed"] and rows[name]["lines"]:
                self.seen[name] = Seen(rows[name]["cpu_s"], rows[name]["lines"])

    def _recorded(self, item: pytest.Item) -> dict[str, Any]:
        """Run a test once in a fork and note its lines."""
        import coverage

        def body(tell: Callable[[Any], None]) -> None:
            tracer = coverage.Coverage(
                data_file=None,
                include=[str(self.folder / p) for p in self.watched],
                config_file=False,
                messages=False,
            )
            signal.setitimer(signal.ITIMER_PROF, RECORD_LIMIT_S)
            tracer.start()
            start_s = time.process_time()
            passed = run_item(item)
            cpu_s = time.process_time() - start_s
            tracer.stop()
            data = tracer.get_data()
            lines = {
                str(Path(file).relative_to(self.folder)): sorted(data.lines(file) or [])
                for file in data.measured_files()
            }
            tell({"passed": passed, "cpu_s": round(cpu_s, 3), "lines": lines})

        _, told = forked(body, 2 * RECORD_LIMIT_S)
        return told[0] if told else {"passed": False, "cpu_s": RECORD_LIMIT_S, "lines": {}}

    def tests_of(self, path: str, lines: range) -> list[str]:
        """Return tests that run one of these lines: first those that kill most for their time."""
        wanted = set(lines)
        found = [n for n, seen in self.seen.items() if wanted & set(seen.lines.get(path, ()))]

        def worth(name: str) -> float:
            """Return CPU time of a kill, as far as is known; a little for the start of any test."""
            cpu_s = self.seen[name].cpu_s + 0.02
            return cpu_s * (self.tries.get(name, 0) + 2) / (self.kills.get(name, 0) + 1)

        return sorted(found, key=worth)

    def judge(self, path: str, after: str, tests: list[str], budget_s: float) -> Verdict:
        """Run tests with a file changed until one fails or the CPU time is spent."""
        if not tests:
            return Verdict(False, "", 0, 0.0)
        name = str(self.folder / path)
        before, start_s = Path(name).read_text(), time.monotonic()

        def body(tell: Callable[[Any], None]) -> None:
            def loop(items: dict[str, pytest.Item]) -> None:
                for number, test in enumerate(tests):
                    if time.process_time() > budget_s and number:
                        break
                    tell(test)
                    # A loop without an end: the signal ends the fork; the mutant counts as seen.
                    signal.setitimer(signal.ITIMER_PROF, 2 + 5 * self.seen[test].cpu_s)
                    passed = test in items and run_item(items[test])
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    if not passed:
                        os._exit(FAILED)
                os._exit(PASSED)

            if exchange(before, after, name):
                loop(self.items)
            self._load_anew(path, after)
            files = sorted({str(self.folder / test.split("::")[0]) for test in tests})
            pytest.main([*OPTIONS, *files], plugins=[_Loop(loop)])
            # Not even the collection succeeded.
            os._exit(FAILED)

        code, told = forked(body, 6 * budget_s + 60)
        killed = code != PASSED
        for test in told:
            self.tries[test] = self.tries.get(test, 0) + 1
        if killed and told:
            self.kills[told[-1]] = self.kills.get(told[-1], 0) + 1
        if killed and told and not self._passes(told[-1]):
            # The test fails by itself, so it says nothing of the mutant.
            del self.seen[told[-1]]
            return self.judge(path, after, [t for t in tests if t != told[-1]], budget_s)
        took_s = round(time.monotonic() - start_s, 1)
        return Verdict(killed, told[-1] if killed and told else "", len(told), took_s)

    def _passes(self, test: str) -> bool:
        """Return whether a test passes with nothing changed, tried once."""
        if test not in self.sound:
            code, _ = forked(
                lambda _: None if run_item(self.items[test]) else os._exit(FAILED),
                2 * RECORD_LIMIT_S,
            )
            self.sound[test] = code == PASSED
        return self.sound[test]

    def _load_anew(self, path: str, after: str) -> None:
        """Forget the product's modules and the tests; the next import sees the change."""
        for key, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if file.startswith(str(self.folder)) and not key.startswith("tools"):
                del sys.modules[key]
        dotted = path.removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, _Changed(dotted, str(self.folder / path), after))


class _Loop:
    """In the place of the loop over the tests."""

    def __init__(self, body: Callable[[dict[str, pytest.Item]], None]) -> None:
        self.body = body

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Hand the tests over by their ids."""
        for item in session.items:
            few_examples(item)
        self.body({item.nodeid: item for item in session.items})
        return True


def session(
    folder: Path, files: list[str], watched: list[str], work: Callable[[Judge], None]
) -> int:
    """Collect the tests of a checkout in this process, then do the work; pytest's exit code."""
    os.chdir(folder)
    sys.path[:] = [p for p in sys.path if p and not (Path(p) / "rm" / "match").exists()]
    sys.path.insert(0, str(folder))
    sys.modules.pop("tools", None)

    def begin(items: dict[str, pytest.Item]) -> None:
        gc.collect()
        gc.freeze()
        work(Judge(folder, watched, items))

    return int(pytest.main([*OPTIONS, *files], plugins=[_Loop(begin)]))
