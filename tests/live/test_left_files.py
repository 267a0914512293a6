"""What tasks wrote is gone when their applications end, but for logs, and those after a while."""

import os
from pathlib import Path

from testkit.live import until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.job import Job, Stage

WRITES = "mkdir -p a/b; echo x >a/b/c; head -c 20000 /dev/zero >big; echo line; echo e >&2"
TASKS, JOBS, LOGS = 50, 4, ("stdout", "stderr")


def files(work: Path) -> tuple[int, list[str]]:
    """How many logs there are, and what else lies in folders of applications."""
    walk = os.walk(work)
    found = [
        Path(place, name) for place, _, names in walk if "application_" in place for name in names
    ]
    logs = [path for path in found if path.name in LOGS]
    return len(logs), [str(path.relative_to(work)) for path in found if path not in logs]


def test_nothing_of_tasks_is_left_but_their_logs(tmp_path: Path) -> None:
    settings = LocalSettings(mode="process", cluster="1x8vcores,8192memory_mb", state=True)
    stage = Stage("s", TASKS, 0.1, {"vcores": 1.0, "memory_mb": 32.0}, command=("sh", "-c", WRITES))
    with LocalCluster(settings, tmp_path) as cluster:
        work = tmp_path / "work"
        with Client(cluster.address) as client:
            apps = [client.submit(Job(f"j{number}", (stage,))) for number in range(JOBS)]
            reports = client.wait(apps)
            assert {one.final_status for one in reports.values()} == {"SUCCEEDED"}
            until(lambda: files(work) == (2 * TASKS * JOBS, []), "only logs are left")
            assert client.read_log(client.tasks(apps[0])[0]).startswith(b"line")
        for retain in ("10800", "0"):
            cluster.processes["nm0"].kill()
            cluster.processes["nm0"].wait()
            cluster._launch("nm0", "nm", [*cluster._nm_flags(0), f"--log-retain-s={retain}"])
            cluster._await("nm0")
            left = 2 * TASKS * JOBS if retain != "0" else 0
            until(lambda left=left: files(work) == (left, []), f"{left} logs are left")
        assert not list(work.rglob("container_*"))
        assert "files cannot be removed" not in (tmp_path / "nm0.log").read_text()
