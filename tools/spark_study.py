"""Twelve Spark applications at once under several schedulers: how long each takes, side by side.

    python -m tools.spark_study --times 3 --schedulers capacity drf tetris graphene

Each application runs one query (`tools.spark_queries`) with dynamic allocation. Their drivers are
started first and wait for each other; from then on one begins every two seconds, the large ones
first, so that order matters. A cluster (fresh for each scheduler) has room for a quarter of the
executors that they want. Repetitions take the schedulers in turn's order, on the same cluster: from
the second one on the graphs of all twelve are known by their names.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tools.spark_kit import LIGHT, ROOT, VERSION, Failure, Running, Spark, install, say
from tools.spark_queries import QUERIES, Tables, answer
from weft.client.local import LocalCluster, LocalSettings

SCHEDULERS = ("capacity", "drf", "tetris", "graphene")
# Each node has room for four executors.
NODES = "2x16vcores,3584memory_mb"
SCALES = (3, 1)
APART_S = 2.0
# This is a limit, never a measure.
PATIENCE_S = 900.0
SETTINGS = {
    "spark.executor.instances": "0",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "10s",
    # A driver's own Java machine is its master.
    "spark.yarn.unmanagedAM.enabled": "true",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.driver.extraJavaOptions": LIGHT,
    "spark.executor.extraJavaOptions": LIGHT,
}


class Application(NamedTuple):
    """One of the twelve."""

    query: str
    scale: int

    @property
    def name(self) -> str:
        """Name that Spark and Weft's history know it by."""
        return f"{self.query}x{self.scale}"


APPLICATIONS = [Application(query, scale) for scale, query in product(SCALES, QUERIES)]


def expected() -> dict[str, list[Any]]:
    """Return the right answers, computed here."""
    return {
        one.name: json.loads(json.dumps(answer(one.query, Tables(Rows.numbers, one.scale, 0.0))))
        for one in APPLICATIONS
    }


class Rows(list[Any]):
    """As much of Spark's RDD as the queries use, in this process."""

    @classmethod
    def numbers(cls, count: int) -> "Rows":
        """Return the numbers below a count."""
        return cls(range(count))

    def map(self, change: Any) -> "Rows":
        """Return every row, changed."""
        return Rows(change(row) for row in self)

    def flatMap(self, change: Any) -> "Rows":
        """Return the rows that are made of all rows, in one list."""
        return Rows(new for row in self for new in change(row))

    def filter(self, keep: Any) -> "Rows":
        """Return the rows that are kept."""
        return Rows(row for row in self if keep(row))

    def reduceByKey(self, merge: Any, parts: int) -> "Rows":
        """Return values merged by key."""
        found: dict[Any, Any] = {}
        for key, value in self:
            found[key] = merge(found[key], value) if key in found else value
        return Rows(found.items())

    def join(self, other: "Rows", parts: int) -> "Rows":
        """Return (key, (value here, value there)) of every pair of a key."""
        there: dict[Any, list[Any]] = {}
        for key, value in other:
            there.setdefault(key, []).append(value)
        return Rows((key, (value, one)) for key, value in self for one in there.get(key, ()))

    def collect(self) -> list[Any]:
        """Return the rows."""
        return list(self)


def once(spark: Spark, right: Mapping[str, list[Any]], number: int) -> dict[str, float]:
    """Run the twelve; completion times by name, s, from when each was let go."""
    folder = spark.work / f"run{number}"
    folder.mkdir()
    runs: dict[str, Running] = {}
    for one in APPLICATIONS:
        ready, gate = folder / f"{one.name}.ready", folder / f"{one.name}.gate"
        running = spark.submit(
            f"{one.name}",
            "client",
            "queries",
            str(ready),
            str(gate),
            one.query,
            str(one.scale),
            settings=SETTINGS,
        )
        running.ends_s = time.monotonic() + PATIENCE_S
        runs[one.name] = running
    give_up = time.monotonic() + PATIENCE_S
    while not all((folder / f"{name}.ready").exists() for name in runs):
        for running in runs.values():
            if running.process.poll() or time.monotonic() > give_up:
                raise Failure(f"{running.log.stem} is not ready\n{running.text()[-3000:]}")
        time.sleep(0.2)
    begins = time.time() + 1.0
    for place, name in enumerate(runs):
        gate = folder / f"{name}.gate"
        gate.with_suffix(".part").write_text(repr(begins + place * APART_S))
        gate.with_suffix(".part").rename(gate)
    took = {}
    for name, running in runs.items():
        if code := running.wait():
            raise Failure(f"{name} ended with {code}\n{running.text()[-3000:]}")
        told = json.loads(running.result.read_text())
        if told["rows"] != right[name]:
            raise Failure(f"{name} has a wrong answer: {told['rows'][:3]} for {right[name][:3]}")
        took[name] = told["ended_s"] - told["began_s"]
    return took


def table(found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Return the results as Markdown: means over repetitions, with the lowest and highest one."""
    names = list(found)
    lines = ["| application | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]

    def cell(values: Sequence[float]) -> str:
        mean = statistics.fmean(values)
        spread = f" ({min(values):.0f} to {max(values):.0f})" if len(values) > 1 else ""
        return f"{mean:.1f}{spread}"

    for one in APPLICATIONS:
        cells = [cell([run[one.name] for run in found[name]]) for name in names]
        lines.append(f"| {one.name} | " + " | ".join(cells) + " |")
    means = {name: [statistics.fmean(run.values()) for run in found[name]] for name in names}
    lines.append("| **mean, s** | " + " | ".join(f"**{cell(means[n])}**" for n in names) + " |")
    small = {
        name: [statistics.fmean(run[a.name] for a in APPLICATIONS if a.scale == 1) for run in runs]
        for name, runs in found.items()
    }
    lines.append("| mean of the small ones | " + " | ".join(cell(small[n]) for n in names) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run the study and print its table; 0: all is well, or nothing could be run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spark-version", default=VERSION)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--schedulers", nargs="+", default=list(SCHEDULERS))
    parser.add_argument("--out", default="", help="write every time there, as JSON")
    parser.add_argument("--tape", default="", help="keep tapes there, for weft whatif")
    chosen = parser.parse_args()
    # Clients and clusters then end in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    venv = install(chosen.spark_version) if shutil.which("java") else ""
    if not venv:
        say("not run: there is no Java, or no PySpark")
        return 0
    right, found = expected(), {name: [] for name in chosen.schedulers}  # type: ignore[var-annotated]
    for scheduler in chosen.schedulers:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-study-")))
            work = folder / "clients"
            work.mkdir()
            settings = LocalSettings(
                cluster=NODES,
                mode="process",
                hadoop=True,
                web=True,
                scheduler=scheduler,
                tape=Path(chosen.tape) / scheduler if chosen.tape else None,
            )
            cluster = stack.enter_context(LocalCluster(settings, folder / "cluster"))
            spark = Spark(cluster, Path(venv), work)
            stack.callback(spark.end)
            shutil.copy(ROOT / "tools" / "spark_queries.py", work / "queries.py")
            for number in range(chosen.times):
                began = time.monotonic()
                found[scheduler].append(once(spark, right, number))
                mean = statistics.fmean(found[scheduler][-1].values())
                load = os.getloadavg()[0]
                spent = time.monotonic() - began
                say(f"{scheduler} {number + 1}: mean {mean:.1f} s; {spent:.0f} s, load {load:.1f}")
            if problem := cluster.failed():
                raise Failure(problem)
        if chosen.out:
            Path(chosen.out).write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
