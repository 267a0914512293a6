"""A folder of 200,000 names that a task left is read and removed, and nobody's timers are late."""

import contextlib
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.etcd import data_folder
from testkit.live import series, until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import WeftError
from weft.model.job import Job, Stage

NAMES, READS, LOG_BYTES = 200_000, 5, 10_000_000
# One that looked for a log in all of the names was late by 20 s, and its node LOST. On a host that
# has more to do than it can, the manager, which has nothing to do with it, is late as well.
P99_S_MAX = 1.0
REMOVED_S = 600.0
MANY = f"import os\nfor number in range({NAMES}): os.mknod(str(number))"


def beats(address: str) -> dict[float, float]:
    """Return how often a process's timers were late by so much, s, at most."""
    rows = re.findall(r'weft_event_loop_lag_seconds_bucket{le="(.+)"} (.+)', series(address))
    return {float(most): float(many) for most, many in rows}


def count(late: dict[float, float]) -> float:
    """Return how many timers there were."""
    return max(late.values())


def p99_s(before: dict[float, float], after: dict[float, float]) -> float:
    """Return by how much the 99th of a hundred was late at most, s."""
    late = {most: many - before[most] for most, many in sorted(after.items())}
    total = max(late.values())
    return next(most for most, many in late.items() if many >= 0.99 * total)


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder of a file system that is quick with so many names."""
    folder = data_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_heartbeats_go_on_beside_a_folder_of_any_size(in_memory: Path) -> None:
    settings = LocalSettings(
        mode="process", hadoop=True, nodes=1, cluster="1x4vcores,4096memory_mb"
    )
    script = f"{sys.executable} -c '{MANY}'; head -c {LOG_BYTES} /dev/zero"
    stage = Stage("s", 1, 0.1, {"vcores": 1.0, "memory_mb": 2048.0}, command=("sh", "-c", script))
    waits = Stage("w", 1, 0.1, {"vcores": 1.0, "memory_mb": 64.0}, command=("sleep", "600"))
    with LocalCluster(settings, in_memory) as cluster, Client(cluster.address) as client:
        app = client.submit(Job("names", (stage, waits)))
        task = until(
            lambda: next((one for one in client.tasks(app) if one.stage == "s"), None), "it runs"
        )

        def written() -> bool:
            with contextlib.suppress(WeftError):
                return len(client.read_log(task)) == LOG_BYTES
            return False

        until(written, "it has written")
        folder = next((in_memory / "work").glob("*/application_*/container_*/0")).parent

        node, other = (cluster.ready[name]["metrics"] for name in ("nm0", "rm"))

        def judge(address: str, before: tuple[dict[float, float], ...]) -> None:
            until(lambda: count(beats(address)) >= count(before[0]) + 10, "timers")
            own, others = p99_s(before[0], beats(address)), p99_s(before[1], beats(other))
            assert own <= max(P99_S_MAX, others)

        before = beats(node), beats(other)
        for _ in range(READS):
            assert len(client.read_log(task)) == LOG_BYTES
        client.kill(app)
        until(
            lambda: not (folder / "0").exists() and len(list(folder.iterdir())) <= 2,
            "it is gone",
            REMOVED_S,
        )
        judge(node, before)

        many = in_memory / "hadoop-files" / "user" / "many"
        many.mkdir(parents=True)
        for number in range(NAMES):
            (many / f"{number}").touch()
        place = str(cluster.ready["hadoop"]["files"]).partition("://")[2].strip("/")
        gateway = cluster.ready["hadoop"]["metrics"]
        before = beats(gateway), beats(other)
        for method, operation in (
            ("GET", "LISTSTATUS"),
            ("GET", "GETCONTENTSUMMARY"),
            ("DELETE", "DELETE&recursive=true"),
        ):
            asked = urllib.request.Request(
                f"http://{place}/webhdfs/v1/user/many?op={operation}", method=method
            )
            with urllib.request.urlopen(asked, timeout=REMOVED_S) as got:
                assert got.read()
        assert not many.exists()
        judge(gateway, before)
