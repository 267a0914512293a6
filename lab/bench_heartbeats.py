"""How long does the Resource Manager take for a heartbeat of a busy cluster?

Emulated nodes with 1 s heartbeats run concurrent hosted jobs; the answer is read from the Resource
Manager's Prometheus endpoint, as anybody else would read it: the upper bound of the histogram's
bucket that holds the quantile.
"""

import time
import urllib.request
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.job import Edge, Job, Stage

Row = dict[str, object]
EVENT = "NodeHeartbeated"


def run(quick: bool = False) -> list[Row]:
    """Both paces, with 200 nodes and 50 jobs."""
    nodes, jobs = (20, 5) if quick else (200, 50)
    return [_case(pace, nodes, jobs) for pace in ("prompt", "yarn")]


def _case(pace: str, nodes: int, jobs: int) -> Row:
    with LocalCluster(LocalSettings(nodes=nodes, pace=pace)) as cluster:
        with Client(cluster.address) as client:
            client.wait([client.submit(_job(0, 2, 10))])  # warms up
            began_s = time.perf_counter()
            apps = [client.submit(_job(number, 8, 60)) for number in range(jobs)]
            reports = client.wait(apps, poll_s=0.5)
            took_s = time.perf_counter() - began_s
        counts = _buckets(str(cluster.ready["rm"]["metrics"]))
    return {
        "pace": pace,
        "nodes": nodes,
        "jobs": jobs,
        "succeeded": sum(r.final_status == "SUCCEEDED" for r in reports.values()),
        "took_s": round(took_s, 1),
        "heartbeats": round(counts[-1][1]),
        "p50_ms": 1000 * quantile(counts, 0.5),
        "p99_ms": 1000 * quantile(counts, 0.99),
        "p999_ms": 1000 * quantile(counts, 0.999),
    }


def _job(number: int, stages: int, tasks: int) -> Job:
    demand = {"vcores": 1.0, "memory_mb": 1024.0}
    return Job(
        f"load-{number}",
        tuple(
            Stage(
                f"s{i}", tasks, 1.0 + 0.1 * (number % 7), demand, (Edge(f"s{i - 1}"),) if i else ()
            )
            for i in range(stages)
        ),
    )


def _buckets(address: str) -> list[tuple[float, float]]:
    """(upper bound in s, cumulative count) of the heartbeats' histogram."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sorted(
        (float(sample.labels["le"]), sample.value)
        for family in families
        if family.name == "weft_handle_seconds"
        for sample in family.samples
        if sample.name.endswith("_bucket") and sample.labels["event"] == EVENT
    )


def quantile(counts: Iterable[tuple[float, float]], q: float) -> float:
    """The upper bound of the bucket that holds a quantile."""
    rows = list(counts)
    return next(bound for bound, seen in rows if seen >= q * rows[-1][1])
