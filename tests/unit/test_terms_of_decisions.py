"""What a kept decision says that it went by can be worked out from the decisions before it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, cluster_from_text
from weft.model.ids import app_of_attempt, app_of_container, container_id
from weft.model.job import Job, Stage
from weft.model.queues import queues_from_dict
from weft.policies.presets import choose

TOTAL = np.array([24.0, 24_576.0])
MASTER = 0.1, 256.0
GUARANTEES = {"root.a": 0.75, "root.b": 0.25}
CLUSTER = cluster_from_text("4x6vcores,6144memory_mb")
QUEUES = {"root": {path.removeprefix("root."): {"capacity": p} for path, p in GUARANTEES.items()}}
TWO_QUEUES = replace(CLUSTER, queues=queues_from_dict(QUEUES, "queues"))


def placed(scheduler: str, cluster: ClusterSpec, queues: str) -> list[dict[str, Any]]:
    """Return the kept decisions of six jobs that want more than there is."""
    jobs = [
        Job(
            f"j{at}",
            (Stage("s", 9, 3.0 + at, {"vcores": 1.0, "memory_mb": 512.0}),),
            queue=queues[at % len(queues)] if queues else "default",
            priority=at,
            arrival_s=0.5 * at,
        )
        for at in range(6)
    ]
    kept: list[dict[str, Any]] = []
    settings = SimSettings(choose(scheduler), seed=3)
    Simulation(cluster, jobs, settings, Recorder(log=kept.append)).run()
    return kept


@pytest.mark.parametrize("scheduler", ["capacity", "drf"])
def test_what_the_queues_held_is_the_sum_of_the_decisions_before(scheduler: str) -> None:
    queue_of: dict[int, str] = {}
    holds: dict[int, tuple[str, tuple[float, float]]] = {}
    seen, last = set[str](), None
    for fact in placed(scheduler, TWO_QUEUES, "ab"):
        kind = fact["fact"]
        if kind == "AppChanged":
            queue_of[fact["app"]] = fact["queue"]
        elif kind == "AttemptChanged" and fact["state"] == "ALLOCATED":
            master = container_id(fact["attempt"], 1)
            holds[master] = queue_of[app_of_attempt(fact["attempt"])], MASTER
        elif kind == "Closed":
            holds.pop(fact["container"])
        elif kind == "Placed":
            # One answer grants many: what it went by was worked out before the first of them.
            decision = fact["t"], fact["node"], fact["ask"]
            if decision != last:
                queue, terms = fact["queue"], dict(fact["scores"])
                mine = [amounts for owner, amounts in holds.values() if owner == queue]
                dominant = max(
                    sum(part) / all_
                    for part, all_ in zip(zip(*mine, strict=True), TOTAL, strict=True)
                )
                assert terms[f"used of {queue}"] == pytest.approx(dominant / GUARANTEES[queue])
                seen.add(queue)
            last = decision
            holds[fact["container"]] = fact["queue"], fact["demand"]
    assert seen == GUARANTEES.keys()


@pytest.mark.parametrize("scheduler", ["fifo", "capacity", "yarn"])
def test_the_place_in_the_line_is_kept(scheduler: str) -> None:
    rows = [fact for fact in placed(scheduler, CLUSTER, "") if fact["fact"] == "Placed"]
    assert rows
    for fact in rows:
        terms = dict(fact["scores"])
        number = app_of_container(fact["container"])
        assert (terms["priority"], terms["submission"]) == (number - 1, number)
