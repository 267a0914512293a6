"""Ended applications: the newest are kept whole, of those before only what a list says."""

import sys
from dataclasses import replace
from enum import Enum
from typing import Any

from rm import forgetting, recovery
from rm.forgetting import ENDED_WHOLE_MAX
from rm.recovery import compact
from rm.settings import ManagerSettings
from testkit.builders import job, stage
from testkit.manager import Rig
from weft.model.job import Job, TaskOverride
from weft.protocol.requests import (
    ApplicationJob,
    GetApplication,
    GetJob,
    KillApplication,
    ListApplications,
    Refused,
    SubmitApplication,
)

MANY = ENDED_WHOLE_MAX + 5
SETTINGS = ManagerSettings(prompt=True, master_demand={})


def ended(count: int) -> Rig:
    rig = Rig(settings=SETTINGS)
    tasks = tuple(TaskOverride(duration_s=float(n)) for n in range(50))
    stages = [stage(f"stage {n}", tasks=50, overrides=tasks) for n in range(4)]
    for n in range(count):
        app = rig.submit(job(f"job {n}", *stages))
        rig.ask_manager(KillApplication(app, "w" * 2_000))
    return rig


def size_of(value: Any, seen: set[int]) -> int:
    """Bytes of an object with all that only it holds."""
    if id(value) in seen or isinstance(value, type | Enum) or value is None:
        return 0
    seen.add(id(value))
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, str | bytes | int | float):
        parts = []
    elif hasattr(value, "__iter__"):
        parts = list(value)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    parts += [getattr(value, name) for name in slots if hasattr(value, name)]
    parts += list(getattr(value, "__dict__", {}).values())
    return sys.getsizeof(value) + sum(size_of(part, seen) for part in parts)


def test_of_older_ended_applications_little_is_kept_and_lists_still_have_them() -> None:
    rig = ended(MANY)
    books = rig.manager.books
    assert len(rig.ask_manager(ListApplications()).items) == MANY
    seen: set[int] = set()
    size_of(books.apps[1], seen)  # what all share is not each one's
    assert max(size_of(books.apps[number], seen) for number in range(2, 6)) <= 2_100
    assert size_of(books.apps[MANY], set()) > 2_100, "the newest are whole"
    old = rig.ask_manager(GetApplication(1))
    assert (old.name, old.state, old.tasks) == ("job 0", "KILLED", 200)
    refused = rig.ask_manager(GetJob(1))
    assert isinstance(refused, Refused)
    assert refused.code == "not_found"
    assert isinstance(rig.ask_manager(GetJob(MANY)), ApplicationJob)


def test_the_journal_keeps_as_little_and_a_restart_knows_the_same() -> None:
    rig = ended(MANY)
    records = compact(rig.records)
    assert compact(records) == records
    again = Rig(settings=SETTINGS, records=records)
    for number in (1, 5, 6, MANY):
        before, after = (r.ask_manager(GetApplication(number)) for r in (rig, again))
        assert (after.name, after.tasks, after.state) == (before.name, before.tasks, before.state)
    assert again.ask_manager(GetJob(5)).code == "not_found"
    assert isinstance(again.ask_manager(GetJob(6)), ApplicationJob)


def test_an_accepted_job_that_breaks_a_rule_of_today_ends_and_the_others_come_back() -> None:
    """A journal of an earlier version may hold names that no encoding can carry."""
    rig = Rig(settings=SETTINGS)
    rig.submit(job("good"))
    rig.submit(job("bad"))
    records = [dict(record) for record in rig.records]
    for record in records:
        if record["kind"] == "app" and record["app"] == 2:
            record["job"] = {**record["job"], "name": "\ud800"}
    again = Rig(settings=SETTINGS, records=records)
    bad = again.ask_manager(GetApplication(2))
    assert bad.state == "FAILED"
    assert "name" in bad.diagnostics
    assert again.ask_manager(GetApplication(1)).state == "ACCEPTED"
    assert Rig(settings=SETTINGS, records=again.records).ask_manager(GetApplication(2)) is not None


def large(name: str) -> Job:
    """Return a job that takes about 4 MB."""
    return job(name, *(stage(f"stage {n}", tasks=1) for n in range(1_300)))


def test_large_jobs_that_have_not_ended_are_bounded_in_all_and_after_a_restart() -> None:
    settings = replace(SETTINGS, jobs_mb_max=10.0)
    rig = Rig(settings=settings)
    first, second = rig.submit(large("a")), rig.submit(large("b"))
    small = job("c", stage("tasks", tasks=10))
    for one, taken in ((large("c"), "4.0"), (job("d", stage("many", tasks=10**5)), "10.0")):
        refused = rig.ask_manager(SubmitApplication(one, ""))
        assert isinstance(refused, Refused)
        assert (refused.code, refused.place) == ("resource_exhausted", "job")
        assert refused.problem.startswith(f"it takes {taken} MB")
        assert refused.problem.endswith("of the 10.0 MB that they may take in all (jobs_mb_max)")
    rig.submit(small)
    again = Rig(settings=settings, records=compact(rig.records))
    assert isinstance(again.ask_manager(SubmitApplication(large("c"), "")), Refused)
    for one in (rig, again):
        one.ask_manager(KillApplication(first))
        one.submit(large("c"))
    lower = Rig(settings=replace(settings, jobs_mb_max=1.0), records=compact(rig.records))
    assert lower.ask_manager(GetApplication(second)).state == "ACCEPTED", "what is there stays"


def test_of_large_jobs_that_ended_as_many_are_whole_as_take_little_memory(monkeypatch) -> None:
    for module in (forgetting, recovery):
        monkeypatch.setattr(module, "ENDED_WHOLE_BYTES_MAX", 10_000_000)
    rig = Rig(settings=SETTINGS)
    apps = [rig.submit(large(f"{n}")) for n in range(5)]
    for app in apps:
        rig.ask_manager(KillApplication(app))
    again = Rig(settings=SETTINGS, records=compact(rig.records))
    for one in (rig, again):
        answers = [one.ask_manager(GetJob(app)) for app in apps]
        assert [isinstance(got, ApplicationJob) for got in answers] == [False] * 3 + [True] * 2
        assert len(one.ask_manager(ListApplications()).items) == len(apps)
    assert (
        sum(len(record["job"]["stages"]) > 1 for record in compact(rig.records) if "job" in record)
        == 2
    )
