"""No test skips in the gate for want of a package.

Under WEFT_NO_SKIP=1 (`.ci/run` sets it and installs what tests need) a skip whose reason is not
listed here fails the run. On a user's machine tests go on skipping with their reason.
Hypothesis draws the same examples each time there.

Under `pytest -n N --dist loadfile --no-loadscope-reorder` (`make test`) a file's tests share their
cluster, kernels and recorded runs on one worker. What compiles most kernels goes first, on a worker
of its own; live clusters, which mostly wait, are spread among what computes.
"""

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# What no package can give, and why.
MAY_SKIP = {
    r"WEFT_DATA|no public inputs|no input files|is not there|among the inputs|no logs": (
        "public inputs are not part of the repository"
    ),
    r"a strict line serves": "a property that one matcher does not have",
    r"this log is refused|not in the table|the log is cut off": "properties of one public input",
    r"WEFT_TESTBED=1|WEFT_IMAGE_TEST=1": "runs of minutes that have a command of their own",
    r"control group|cgroup|blkio|disk|direct I/O|kernel|namespace|mounted": "the kernel lacks it",
    r"root": "needs the right to change the host",
    r"needs /proc": "Linux only",
}
NO_SKIP = os.environ.get("WEFT_NO_SKIP", "0") not in ("", "0")

# The gate judges a change, so the same commit has the same answer each time; every other run of
# the tests draws new examples and is where they hunt.
# How long an example takes is the machine's affair.
settings.register_profile("weft", deadline=None)
settings.register_profile("gate", settings.get_profile("weft"), derandomize=True)
settings.load_profile("gate" if NO_SKIP else "weft")


def may_skip(reason: str) -> bool:
    """Return whether a test may skip for this reason even in the gate."""
    return any(re.search(pattern, reason, re.IGNORECASE) for pattern in MAY_SKIP)


def _judge(report: Any) -> None:
    """Turn a skip that is not listed into a failure."""
    if not (NO_SKIP and report.skipped) or hasattr(report, "wasxfail"):
        return
    place = report.longrepr
    reason = place[2] if isinstance(place, tuple) else str(place)
    if not may_skip(reason):
        report.outcome = "failed"
        report.longrepr = f"WEFT_NO_SKIP: {report.nodeid} skips: {reason.removeprefix('Skipped: ')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    """Judge the skip of a test."""
    report = yield
    _judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[Any]:
    """Judge the skip of a whole module."""
    report = yield
    _judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Keep the collector away from what is loaded: it all stays until the end.

    Else a third of the time of collecting tests goes there, and each whole collection of a test
    looks at half a gigabyte.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


FIRST = ("golden", "house", "transcripts", "wire")  # no other needs a kernel but the first
TESTS = Path(__file__).parent
SOON = 0.9  # live files are over when so much of the others is: none of them is the last to end


def in_turn(files: list[Path]) -> list[Path]:
    """Return test files in the order in which they go to workers."""
    folder = {file: file.relative_to(TESTS).parts[0] for file in files}
    first = [file for name in FIRST for file in files if folder[file] == name]
    live = [file for file in files if folder[file] == "live"]
    others = [file for file in files if folder[file] not in (*FIRST, "live")]
    spread = [(SOON * (i + 0.5) / len(live), file) for i, file in enumerate(live)]
    spread += [((i + 0.5) / len(others), file) for i, file in enumerate(others)]
    return first + [file for _, file in sorted(spread)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files in turn; the order inside each stays."""
    files = list(dict.fromkeys(item.path for item in items if item.path.is_relative_to(TESTS)))
    place = {file: at for at, file in enumerate(in_turn(files))}
    items.sort(key=lambda item: place.get(item.path, len(place)))


class ByFile(LoadFileScheduling):
    """A file stays on one worker, and so do the golden runs together.

    Each kernel they compile is kept for the others then, instead of being compiled on every worker
    at once.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return what a test's worker is chosen by."""
        file: str = super()._split_scope(nodeid)
        return "tests/golden" if file.startswith("tests/golden/") else file


@pytest.hookimpl(optionalhook=True)  # `make mutants` runs without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    """Deal the files out, where `--dist loadfile` asks for that."""
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None
