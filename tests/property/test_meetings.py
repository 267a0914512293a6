"""Where two features of the scheduler meet: each is right alone, and so are both together."""

from itertools import pairwise
from typing import Any

import pytest

import weft
from rm.match.registry import MATCHERS
from weft.model.errors import InputError

TYPES = [{"name": "vcores", "kind": "divisible"}, {"name": "memory_mb", "kind": "rigid"}]
SMALL = {"vcores": 1, "memory_mb": 512}
every_matcher = pytest.mark.parametrize("matcher", sorted(MATCHERS))


def cluster(*nodes: dict[str, Any], **queues: dict[str, Any]) -> dict[str, Any]:
    """Nodes by `count`, `vcores` and what else they have; queues below the root."""
    listed = [
        {"capacity": {"vcores": node.pop("vcores", 8), "memory_mb": 65536}, **node}
        for node in map(dict, nodes)
    ]
    tree = {"queues": {"root": queues}} if queues else {}
    return {"resources": TYPES, "nodes": listed, **tree}


def job(name: str, tasks: int, demand: dict[str, float] = SMALL, **more: Any) -> dict[str, Any]:
    """One stage; `queue`, `user`, `arrival_s`, `priority` are the job's, the rest the stage's."""
    own = {key: more.pop(key) for key in ("queue", "user", "arrival_s", "priority") if key in more}
    return {
        "name": name,
        **own,
        "stages": [{"name": "s", "tasks": tasks, "demand": demand, **more}],
    }


def run(jobs: list[dict[str, Any]], spec: dict[str, Any], preset: str, **more: Any) -> Any:
    """One checked simulation; `options` are settings by name."""
    return weft.simulate(jobs, spec, preset, seed=1, checks=True, **more)


def states(result: Any) -> list[str]:
    """How each job stands at the end."""
    return [row["state"] for row in result.jobs.to_pylist()]


# -- limits of queues and users -------------------------------------------------------------------


@every_matcher
def test_users_at_their_limits_do_not_wait_for_each_other(matcher: str) -> None:
    """A third of the queue each is less than one task; on an idle cluster all of them start."""
    spec = cluster({"count": 2}, a={"capacity": 0.5, "user_limit": 0.25}, b={"capacity": 0.5})
    jobs = [
        job(user, 2, {"vcores": 3, "memory_mb": 512}, queue="root.a", user=user, duration_s=10)
        for user in "uvw"
    ]
    assert states(run(jobs, spec, matcher, until_s=200.0)) == ["SUCCEEDED"] * 3


@every_matcher
def test_masters_alone_do_not_use_a_queues_maximum_up(matcher: str) -> None:
    """Two masters beside one task would be too much, so tasks start one after the other."""
    spec = cluster({"count": 1}, a={"capacity": 0.25, "max_capacity": 0.25}, b={"capacity": 0.75})
    full = {"vcores": 2, "memory_mb": 512}
    jobs = [job(name, 2, full, queue="root.a", duration_s=5) for name in "xy"]
    result = run(jobs, spec, matcher, until_s=200.0)
    assert states(result) == ["SUCCEEDED"] * 2
    times = sorted((row["start_s"], row["end_s"]) for row in result.tasks.to_pylist())
    assert all(end <= start for (_, end), (start, _) in pairwise(times))


def test_what_a_maximum_can_never_hold_is_refused_by_name() -> None:
    spec = cluster({"count": 2}, a={"capacity": 0.25, "max_capacity": 0.25}, b={"capacity": 0.75})
    wide = job("wide", 1, {"vcores": 5, "memory_mb": 512}, queue="root.a", duration_s=5)
    with pytest.raises(InputError, match=r"queue root\.a may hold 4 at most"):
        run([wide], spec, "capacity", until_s=100.0)
