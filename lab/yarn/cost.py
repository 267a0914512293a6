"""What a node's heartbeat costs the real scheduler and Weft's core, alternated in one run.

`python -m lab.yarn.cost --nodes 1000`: the same scenario through both, three times each in turn;
of the JVM the last of three passes in one process counts, as it is warm then. Both count the
processor time of the thread that decides. On a busy machine only the medians say something.
"""

import argparse
import json
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

from lab.yarn.cases import Case, case_of
from lab.yarn.compare import BUILD, JVM, class_path
from lab.yarn.weft_side import Loop

CAPACITY = "yarn.scheduler.capacity."


def scenario(nodes: int) -> dict[str, Any]:
    """Return a full cluster of four queues: each beat ends a container and grants another."""
    given: dict[str, Any] = {
        "yarn.scheduler.minimum-allocation-mb": 1024,
        "yarn.scheduler.maximum-allocation-mb": 8192,
        CAPACITY + "maximum-am-resource-percent": "1.0",
        CAPACITY + "root.queues": "a,b",
    }
    for path, share in (("a", 60), ("b", 40), ("a.x", 50), ("a.y", 50), ("b.x", 30), ("b.y", 70)):
        given[f"{CAPACITY}root.{path}.capacity"] = share
        if "." in path:
            given[f"{CAPACITY}root.{path}.user-limit-factor"] = 4
    given[CAPACITY + "root.a.queues"], given[CAPACITY + "root.b.queues"] = "x1,y1", "x2,y2"
    for parent, number in (("a", 1), ("b", 2)):
        for name in "xy":
            for key in ("capacity", "user-limit-factor"):
                value = given.pop(f"{CAPACITY}root.{parent}.{name}.{key}")
                given[f"{CAPACITY}root.{parent}.{name}{number}.{key}"] = value
    apps, rounds = max(8, min(nodes // 2, 1000)), 15 if nodes < 5000 else 5
    asks = {"pri": 1, "mem": 4096, "vcores": 1, "count": 2 * rounds * nodes // apps + 10, "dur": 4}
    return {
        "configuration": given,
        "rounds": rounds,
        "nodes": [
            {"name": f"n{i}", "mem": 16384, "vcores": 16, "rack": f"/r{i % 10}"}
            for i in range(nodes)
        ],
        "applications": [
            {"id": i + 1, "at": 0, "user": f"u{i % 5}", "queue": ("x1", "y1", "x2", "y2")[i % 4]}
            | {"asks": [asks]}
            for i in range(apps)
        ],
    }


class _Timed(Loop):
    """The loop, with the time of each heartbeat at the manager's door."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.took_s: list[float] = []

    def tell_beat(self, event: Any) -> list[Any]:
        """Hand in a heartbeat, timed."""
        began = time.thread_time()
        effects = super().tell_beat(event)
        self.took_s.append(time.thread_time() - began)
        return effects


def weft(case: Case) -> dict[str, float]:
    """Return how long Weft's core took for a heartbeat, us."""
    loop = _Timed(case)
    grants = len(loop.run().grants)
    took = sorted(loop.took_s)
    return {
        "beats": len(took),
        "grants": grants,
        "mean_us": sum(took) / len(took) * 1e6,
        "median_us": took[len(took) // 2] * 1e6,
        "p99_us": took[len(took) * 99 // 100] * 1e6,
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def main() -> None:
    """Print a line for each side and turn."""
    parser = argparse.ArgumentParser(description="Time node heartbeats of both schedulers.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    chosen = parser.parse_args()
    data = scenario(chosen.nodes)
    path = BUILD / f"cost-{chosen.nodes}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")
    case = case_of(path.stem, data)
    command = [*JVM, "-cp", class_path(), "Driver", "time", "3", str(Path(path))]
    for _ in range(chosen.times):
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
        print("yarn", done.stdout.strip().splitlines()[-1])
        print("weft", json.dumps(weft(case)), flush=True)


if __name__ == "__main__":
    main()
