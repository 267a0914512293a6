"""Real shell commands with dependencies run on two process-mode nodes and leave the right files."""

from pathlib import Path

from click.testing import CliRunner

from lab.cli import weft
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.jobfile import job_from_dict

CLUSTER = "2x8vcores,8192memory_mb"


def stage(name: str, tasks: int, script: str, parents: list[object]) -> dict[str, object]:
    """A stage whose tasks run a shell script."""
    return {
        "name": name,
        "tasks": tasks,
        "duration_s": 1,
        "demand": {"vcores": 1, "memory_mb": 64},
        "command": ["sh", "-c", script],
        "parents": parents,
    }


def test_twenty_commands_leave_the_right_files(tmp_path: Path) -> None:
    """Eight parts are written, squared one to one, and summed up: 8 + 8 + 3 + 1 commands."""
    out = tmp_path / "out"
    out.mkdir()
    job = job_from_dict(
        {
            "name": "sum-of-squares",
            "stages": [
                stage(
                    "write", 8, f"echo $WEFT_TASK > {out}/n$WEFT_TASK; echo wrote $WEFT_TASK", []
                ),
                stage(
                    "square",
                    8,
                    f"read n < {out}/n$WEFT_TASK && echo $((n * n)) > {out}/s$WEFT_TASK",
                    [{"stage": "write", "edge": "one_to_one"}],
                ),
                stage(
                    "count", 3, f"ls {out}/s* | wc -l > {out}/c$WEFT_TASK; sleep 0.1", ["square"]
                ),
                stage(
                    "sum",
                    1,
                    f"cat {out}/s* | awk '{{ t += $1 }} END {{ print t }}' > {out}/sum; "
                    "echo $WEFT_JOB $WEFT_STAGE $WEFT_ATTEMPT; echo done >&2",
                    ["count", "square"],
                ),
            ],
        }
    )
    assert job.task_count == 20
    with LocalCluster(LocalSettings(cluster=CLUSTER, mode="process"), tmp_path / "c") as cluster:
        with Client(cluster.address) as client:
            app = client.submit(job)
            report = client.wait([app])[app]
            nodes = {c.node_id for c in client.containers(app) if c.stage}
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert len(nodes) == 2, "both nodes took part"
        said = CliRunner().invoke(
            weft, ["logs", str(app), "--rm", cluster.address], catch_exceptions=False
        )
    assert (out / "sum").read_text().strip() == str(sum(n * n for n in range(8)))
    assert [(out / f"c{i}").read_text().strip() for i in range(3)] == ["8"] * 3
    assert "sum-of-squares sum 0" in said.output
    assert "wrote 5" in said.output
    assert "done" in said.output


def test_a_failing_command_is_tried_again_and_then_told(tmp_path: Path) -> None:
    """A task that fails once succeeds on its second try; one that always fails ends the job."""
    flaky = f"test -e {tmp_path}/seen || {{ touch {tmp_path}/seen; exit 3; }}"
    settings = LocalSettings(cluster=CLUSTER, mode="process")
    broken = {
        "name": "broken",
        "max_task_attempts": 2,
        "stages": [stage("a", 1, "exit 7", []), stage("b", 1, "true", ["a"])],
    }
    with LocalCluster(settings, tmp_path / "c") as cluster, Client(cluster.address) as client:
        good = client.submit(job_from_dict({"name": "flaky", "stages": [stage("a", 1, flaky, [])]}))
        bad = client.submit(job_from_dict(broken))
        reports = client.wait([good, bad])
    assert reports[good].final_status == "SUCCEEDED"
    assert reports[good].stages[0].failed_attempts == 1
    assert reports[bad].final_status == "FAILED"
    assert "'a'" in reports[bad].diagnostics or " a" in reports[bad].diagnostics
    assert "7" in reports[bad].diagnostics, "the exit code is told"
    assert reports[bad].stages[1].finished == 0
