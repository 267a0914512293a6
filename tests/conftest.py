"""No test skips in the gate for want of a package.

Under WEFT_NO_SKIP=1 (`.ci/run` sets it and installs what tests need) a skip whose reason is not
listed here fails the run. On a user's machine tests go on skipping with their reason.
Hypothesis draws the same examples each time there.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

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
settings.register_profile("gate", derandomize=True)
if NO_SKIP:
    settings.load_profile("gate")


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
