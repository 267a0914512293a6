"""A matcher of another package that breaks is one line that names its line."""

import json
from pathlib import Path

import pytest

from am.ask.registry import asker
from am.plan.registry import planner
from sim.process.command import main_simulate
from sim.request import Request
from weft.model.errors import InputError, PolicyError
from weft.model.job import Job, Stage
from weft.model.jobfile import job_to_dict

MODULE = """
from rm.match.protocol import BaseMatcher

class Raises(BaseMatcher):
    def match(self, view, node, now):
        raise KeyError("boom")

class Junk(BaseMatcher):
    def match(self, view, node, now):
        return 42

class Leaves(BaseMatcher):
    def match(self, view, node, now):
        raise SystemExit(0)

class Odd(BaseException):
    pass

class Own(BaseMatcher):
    def match(self, view, node, now):
        raise Odd("mine")

class Interrupted(BaseMatcher):
    def match(self, view, node, now):
        raise KeyboardInterrupt

class Init(BaseMatcher):
    def __init__(self):
        raise RuntimeError("none today")

class CancelledError(BaseException):
    pass

class Named(BaseMatcher):
    def match(self, view, node, now):
        raise CancelledError

class Property(BaseMatcher):
    @property
    def match(self):
        raise SystemExit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken_policy:Raises", "KeyError: 'boom' (*broken_policy.py:6)"),
        ("broken_policy:Junk", "object has no attribute 'placements' (*)"),
        ("broken_policy:Init", "RuntimeError: none today (*broken_policy.py:29)"),
        ("broken_policy:Leaves", "matcher 'broken_policy:Leaves': SystemExit: 0 (*y.py:14)"),
        ("broken_policy:Own", "matcher 'broken_policy:Own': Odd: mine (*broken_policy.py:21)"),
        ("broken_policy:Named", "matcher 'broken_policy:Named': CancelledError: (*y.py:36)"),
        ("broken_policy:Property", "matcher 'broken_policy:Property': SystemExit: 0 (*y.py:41)"),
        ("leaving_policy:Any", "cannot load 'leaving_policy': SystemExit: 0"),
    ],
)
def test_what_breaks_in_a_matcher_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    request = asked(tmp_path, monkeypatch, name)
    with pytest.raises((InputError, PolicyError)) as told:
        main_simulate(request)
    start, _, end = says.partition("*")
    assert start in str(told.value)
    assert str(told.value).endswith(end)


@pytest.mark.slow
def test_who_interrupts_the_command_interrupts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        main_simulate(asked(tmp_path, monkeypatch, "broken_policy:Interrupted"))


@pytest.mark.parametrize("seam", ["planner", "asker", "slots", "made", "gone"])
def test_a_planner_or_asker_that_leaves_ends_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seam: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "left_policy.py").write_text(LEFT)
    call = {
        "planner": lambda: planner("left_policy:plan")("request"),
        "asker": lambda: asker("left_policy:Asks").ask("state"),
        "slots": lambda: asker("left_policy:Slots").ask("state"),
        "made": lambda: asker("left_policy:Made"),
        "gone": lambda: asker("left_policy:Gone"),
    }[seam]
    with pytest.raises(PolicyError, match=r"(planner|asker) 'left_policy:\w+': SystemExit: 0"):
        call()


LEFT = """
def plan(request):
    raise SystemExit(0)

class Asks:
    def ask(self, state):
        raise SystemExit(0)

class Slots(Asks):
    __slots__ = ()

class Made(Asks):
    def __init__(self):
        raise SystemExit(0)

def __getattr__(name):
    raise SystemExit(0)
"""


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Request:
    """A simulation under a matcher of MODULE."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_policy.py").write_text(MODULE)
    (tmp_path / "leaving_policy.py").write_text("raise SystemExit(0)")
    job = Job("a", (Stage("s", 3, 2.0, {"vcores": 1.0, "memory_mb": 512.0}),))
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [job_to_dict(job)]}))
    path = str(tmp_path / "jobs.json")
    return Request((path,), "2x8vcores,8192memory_mb", matcher=name)
