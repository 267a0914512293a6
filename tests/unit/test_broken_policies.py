"""A matcher of another package that breaks is one line that names its line."""

import json
from pathlib import Path

import pytest

from sim.command import main_simulate
from sim.request import Request
from weft.errors import InputError, PolicyError
from weft.job import Job, Stage
from weft.jobfile import job_to_dict

MODULE = """
from rm.match.protocol import BaseMatcher

class Raises(BaseMatcher):
    def match(self, view, node, now):
        raise KeyError("boom")

class Junk(BaseMatcher):
    def match(self, view, node, now):
        return 42

class Init(BaseMatcher):
    def __init__(self):
        raise RuntimeError("none today")
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken_policy:Raises", "KeyError: 'boom' (*broken_policy.py:6)"),
        ("broken_policy:Junk", "object has no attribute 'placements' (*)"),
        ("broken_policy:Init", "RuntimeError: none today (*broken_policy.py:14)"),
        ("leaving_policy:Any", "cannot load 'leaving_policy': SystemExit: 0"),
    ],
)
def test_what_breaks_in_a_matcher_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_policy.py").write_text(MODULE)
    (tmp_path / "leaving_policy.py").write_text("raise SystemExit(0)")
    job = Job("a", (Stage("s", 3, 2.0, {"vcores": 1.0, "memory_mb": 512.0}),))
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [job_to_dict(job)]}))
    request = Request((str(tmp_path / "jobs.json"),), "2x8vcores,8192memory_mb", matcher=name)
    with pytest.raises((InputError, PolicyError)) as told:
        main_simulate(request)
    start, _, end = says.partition("*")
    assert start in str(told.value)
    assert str(told.value).endswith(end)
