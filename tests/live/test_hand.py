"""A user's hand on a real cluster: what waiting, failing, interrupting and reading logs say."""

import getpass
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

import weft.results
from lab.cli import weft as command
from testkit.forked import weft as run_weft
from testkit.live import until
from weft.client.api import Client
from weft.client.local import KEPT_MB, LocalCluster, LocalSettings
from weft.model.ids import format_container
from weft.model.jobfile import job_from_dict

WEFT = [sys.executable, "-c", "from lab.cli import main; main()"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """This machine as the one node of a cluster."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(LocalSettings(mode="process", web=True), folder) as started:
        yield started


@pytest.fixture
def address(cluster: LocalCluster) -> str:
    """host:port of its Resource Manager."""
    return cluster.address


def job(name: str, script: str, **more: Any) -> dict[str, Any]:
    stage = {
        "name": "only",
        "tasks": 1,
        "duration_s": 1,
        "demand": {"vcores": 0.5, "memory_mb": 64},
        "command": ["sh", "-c", script],
    }
    return {"name": name, "max_task_attempts": 2, "stages": [stage], **more}


def write(folder: Path, data: dict[str, Any]) -> str:
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(data))
    return str(path)


def test_a_machine_is_one_node_of_its_own_size(address: str) -> None:
    with Client(address) as client:
        (node,) = client.nodes()
    assert node.capacity["vcores"] == len(os.sched_getaffinity(0))
    whole_mb = psutil.virtual_memory().total // 2**20
    assert 0 < node.capacity["memory_mb"] <= whole_mb - KEPT_MB


def test_a_failure_is_told_with_its_task_and_the_end_of_its_stderr(
    address: str, tmp_path: Path
) -> None:
    path = write(tmp_path, job("dying", "for i in $(seq 40); do echo line $i >&2; done; exit 3"))
    done = run_weft("submit", "--rm", address, "--wait", path)
    assert done.returncode == 1
    first = done.stderr.splitlines()[0]
    assert re.fullmatch(r"application_\d+_\d+ dying", first)  # the id comes first
    assert "only[0] attempt 1 on " in done.stderr
    assert "with exit code 3\n" in done.stderr
    assert "exit code 3: exit code 3" not in done.stderr
    assert "  | line 40" in done.stderr
    assert "line 5\n" not in done.stderr
    assert "FAILED" in done.stdout
    assert "Traceback" not in done.stderr


def test_an_interrupt_names_the_job_that_goes_on(address: str, tmp_path: Path) -> None:
    path = write(tmp_path, job("patient", "sleep 60"))
    with subprocess.Popen(
        [*WEFT, "submit", "--rm", address, "--wait", path], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        app = process.stderr.readline().split()[0]
        until_running(address, app)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    last = said.strip().splitlines()[-1]
    assert last == f"weft: interrupted: {app} goes on; it ends with: weft kill {app}"
    assert "Task was destroyed" not in said
    assert "Traceback" not in said
    with Client(address) as client:
        assert client.application(int(app.rpartition("_")[2])).state == "RUNNING"
    assert run_weft("kill", "--rm", address, app).returncode == 0


def test_a_refused_job_names_those_that_were_killed_with_it(address: str, tmp_path: Path) -> None:
    good = write(tmp_path, job("good", "sleep 60"))
    (tmp_path / "bad").mkdir()
    bad = write(tmp_path / "bad", {**job("bad", "true"), "queue": "nowhere"})
    done = run_weft("submit", "--rm", address, good, bad)
    assert done.returncode == 2
    assert "unknown queue 'nowhere'" in done.stderr
    assert done.stderr.strip().endswith("submitted with it and killed again: good")
    with Client(address) as client:
        assert {one.state for one in client.applications() if one.name == "good"} == {"KILLED"}


def until_running(address: str, app: str) -> None:
    number = int(app.rpartition("_")[2])
    with Client(address) as client:
        for report in client.progress(number):
            if report.state == "RUNNING":
                return
    raise AssertionError(f"{app} ended")


def test_logs_are_followed_to_the_end_and_cut_to_their_tail(address: str) -> None:
    script = "for i in 1 2 3 4 5; do echo out $i; sleep 0.2; done; echo bad >&2"
    with Client(address) as client:
        app = client.submit(job_from_dict(job("talking", script)))
        followed = run_weft("logs", "--rm", address, "--follow", "talking")
        assert followed.returncode == 0, followed.stderr
        said = [line for line in followed.stdout.splitlines() if line.startswith(("out", "bad"))]
        assert sorted(said) == sorted([*(f"out {i}" for i in range(1, 6)), "bad"])
        assert client.application(app).final_status == "SUCCEEDED"
        tail = run_weft("logs", "--rm", address, "--tail", "2", "--stream", "stdout", "-")
        assert tail.stdout.splitlines()[1:] == ["out 4", "out 5"]
        (task,) = client.tasks(app)
        assert client.read_log(task).decode() == "".join(f"out {i}\n" for i in range(1, 6))
        assert client.read_log(task, skip=24) == b"out 5\n"


def test_tasks_are_told_apart_while_they_run(address: str, tmp_path: Path) -> None:
    script = f"echo this is $WEFT_TASK; until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    data = job("several", script)
    data["stages"][0] |= {"tasks": 2, "demand": {"vcores": 0.25, "memory_mb": 64}}
    with Client(address) as client:
        app = client.submit(job_from_dict(data))
        until(
            lambda: sorted(one.index for one in client.tasks(app)) == [0, 1], "both have a number"
        )
        said = run_weft("logs", "--rm", address, "several", "--task", "1")
        assert said.stdout.splitlines() == ["==> only[1] attempt 0 stdout <==", "this is 1"]
        (tmp_path / "go").touch()
        client.wait([app])


@pytest.mark.parametrize(
    "words",
    [
        ("explain", ""),
        ("predict", "to"),
        ("events", "--app", "to"),
        ("nodes", "--decommission", ""),
        ("nodes", "--update", ""),
    ],
)
def test_a_shell_is_offered_names_of_what_there_is(address: str, words: tuple[str, ...]) -> None:
    with Client(address) as client:
        for name in ("to complete", "to-complete"):
            client.wait([client.submit(job_from_dict(job(name, "true")))])
        (node,) = client.nodes()
    asked = {
        "_WEFT_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["weft", *words]),
        "COMP_CWORD": str(len(words)),
        "WEFT_RM_ADDRESS": address,
    }
    said = CliRunner().invoke(
        command, [], env=asked, prog_name="weft", complete_var="_WEFT_COMPLETE"
    )
    found = said.output.splitlines()
    assert f"plain,{node.node_id if words[0] == 'nodes' else 'to-complete'}" in found
    assert "plain,to complete" not in found, "a shell would take it for two words"


def test_a_log_is_a_page_in_a_browser_and_text_elsewhere(cluster: LocalCluster) -> None:
    with Client(cluster.address) as client:
        app = client.submit(job_from_dict(job("marked", "echo '<script>1</script> & more'")))
        client.wait([app])
        (task,) = client.tasks(app)
    name = format_container(client.cluster_ts, task.container_id)
    place = f"http://{cluster.web_address}/node/{task.node_id}/containerlogs/{name}/-"

    def read(accept: str) -> tuple[str, str, str]:
        asked = urllib.request.Request(place, headers={"Accept": accept})
        with urllib.request.urlopen(asked) as answer:
            headers = answer.headers
            policy = headers["Content-Security-Policy"]
            return headers.get_content_type(), policy, answer.read().decode()

    kind, policy, text = read("*/*")
    assert kind == "text/plain"
    assert text == "==> stdout <==\n<script>1</script> & more\n==> stderr <==\n"
    kind, policy, text = read("text/html,*/*;q=0.8")
    assert kind == "text/html"
    assert policy.startswith("default-src 'none'")
    assert "&lt;script>1&lt;/script> &amp; more" in text
    assert "<script" not in text
    assert 'content="light dark"' in text, "it follows the reader's theme"


def test_an_application_is_found_by_name_number_and_dash(address: str) -> None:
    with Client(address) as client:
        app = client.submit(job_from_dict(job("by name", "true")))
        client.wait([app])
    runner = CliRunner()
    for text in ("by name", str(app), "-"):
        said = runner.invoke(command, ["app", text, "--rm", address, "--json"])
        assert json.loads(said.output)["app_id"] == app
    for order in (["priority", "by name", "7"], ["move", "by name", "default"]):
        said = runner.invoke(command, [*order, "--rm", address])
        # It has ended, so the manager refuses it: it was found.
        assert "has ended: SUCCEEDED" in str(said.exception), said.output
    said = runner.invoke(command, ["app", "no such job", "--rm", address])
    assert "no such job" in str(said.exception)


def test_logs_of_emulated_tasks_are_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, job("small", "true"))
    with LocalCluster(LocalSettings(nodes=1, time_scale=20.0), tmp_path / "c") as cluster:
        rm = ["--rm", cluster.address]
        run = CliRunner()
        done = run.invoke(command, ["submit", "--wait", *rm, path])
        assert done.exit_code == 0, done.output
        said = run.invoke(command, ["logs", "-", *rm])
        assert said.stderr == "its tasks are emulated: they run no command and write nothing\n"
        kill = run.invoke(command, ["kill", "small", *rm])
        assert str(kill.exception) == "APP: every application named 'small' had ended before"
        kill = run.invoke(command, ["kill", "-", *rm])
        assert "may be another one by now" in str(kill.exception)
        foreseen = run.invoke(command, ["predict", "-", *rm])
        assert str(foreseen.exception) == "application 1: has ended: SUCCEEDED"


def test_events_are_of_one_application_and_speak_in_names(address: str) -> None:
    with Client(address) as client:
        other = client.submit(job_from_dict(job("other", "sleep 1")))
        wanted = client.submit(job_from_dict(job("wanted", "sleep 2")))
        assert client.application(wanted).user == getpass.getuser(), "who calls says who it is"
        followed = run_weft("events", "--rm", address, "--app", "wanted")
        client.wait([other, wanted])
    assert followed.returncode == 0, followed.stderr
    lines = followed.stdout.splitlines()
    assert any("only[0]" in line for line in lines), lines
    assert "FINISHED" in lines[-1]
    numbers = re.findall(r"(?:application|container|appattempt)_\d+_(\d+)", followed.stdout)
    assert {int(number) for number in numbers} == {wanted}
    again = run_weft("events", "--rm", address, "--app", "wanted")
    assert (again.returncode, again.stdout) == (0, "")
    assert "has ended" in again.stderr


def test_a_stage_without_a_command_says_so(address: str) -> None:
    data = job("mute", "")
    del data["stages"][0]["command"]
    with Client(address) as client:
        app = client.submit(job_from_dict(data))
        client.wait([app])
        (task,) = client.tasks(app)
        assert b"no command; the task only sleeps for its 1 s" in client.read_log(task, "stderr")


def test_a_name_moves_no_cursor(address: str, tmp_path: Path) -> None:
    path = write(tmp_path, job("j\x1b[31m red \n newline", "true"))
    done = run_weft("submit", "--rm", address, "--wait", path)
    assert done.returncode == 2
    assert "name: must not contain a control character (U+001B at 1)" in done.stderr
    for text in (done.stdout, done.stderr, run_weft("apps", "--rm", address).stdout):
        assert "\x1b" not in text


def test_unknown_states_queues_and_counts_are_refused(address: str) -> None:
    for arguments, words in (
        (("apps", "--state", "BOGUS"), "unknown state 'BOGUS'"),
        (("nodes", "--state", "BOGUS"), "unknown state 'BOGUS'"),
        (("apps", "--queue", "bogus"), "unknown queue 'bogus'"),
        (("apps", "--limit", "-3"), "-3"),
        (("apps", "--sort", "size"), "unknown column 'size'"),
        (("nodes", "--decommission", "nosuch"), "nosuch"),
        (("app", "999"), "999"),
    ):
        done = run_weft(*arguments, "--rm", address)
        assert done.returncode == 2, (arguments, done.stderr)
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_the_example_of_the_readme_runs(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program.replace("127.0.0.1:8030", address), {})
    assert capsys.readouterr().out.strip() == "SUCCEEDED"


REST: dict[str, tuple[str, str, str, int]] = {  # method, path, body, status
    "unknown application": ("GET", "apps/application_1_99999", "", 404),
    "no application id": ("GET", "apps/application_x", "", 400),
    "unknown state": ("GET", "apps?states=BOGUS", "", 400),
    "unknown state of nodes": ("GET", "nodes?states=BOGUS", "", 400),
    "limit of words": ("GET", "apps?limit=many", "", 400),
    "negative limit": ("GET", "apps?limit=-3", "", 400),
    "unknown node": ("GET", "nodes/nosuch", "", 404),
    "no JSON": ("POST", "apps", "{", 400),
    "a list for an application": ("POST", "apps", "[]", 400),
    "an application of nothing": ("POST", "apps", "{}", 400),
    "kill of an unknown one": ("PUT", "apps/application_1_99999/state", '{"state":"KILLED"}', 404),
    "a state that cannot be": ("PUT", "apps/application_1_1/state", '{"state":"HAPPY"}', 404),
    "no such place": ("GET", "nosuch", "", 404),
}


@pytest.mark.parametrize("name", REST)
def test_bad_requests_over_rest_get_one_clear_line(name: str, cluster: LocalCluster) -> None:
    method, path, body, status = REST[name]
    host = cluster.url.partition("//")[2].partition("/")[0]
    connection = http.client.HTTPConnection(host, timeout=30)
    headers = {"Content-Type": "application/json"} if body else {}
    connection.request(method, f"/ws/v1/cluster/{path}", body or None, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == status, text
    told = json.loads(text)["RemoteException"]["message"]
    assert told
    assert len(told.splitlines()) == 1
    assert "Traceback" not in text


def test_a_trace_of_ten_thousand_live_tasks_is_what_ran(tmp_path: Path) -> None:
    """Every task that the node managers ended is a slice, and a row of the folder's table."""
    trace, folder = tmp_path / "live.perfetto.json", tmp_path / "c"
    data = {
        "name": "wide",
        "stages": [
            {
                "name": "m",
                "tasks": 9900,
                "duration_s": 20,
                "demand": {"vcores": 0.1, "memory_mb": 8},
            },
            {
                "name": "r",
                "tasks": 100,
                "duration_s": 5,
                "demand": {"vcores": 1, "memory_mb": 8},
                "parents": ["m"],
            },
        ],
    }
    flags = ["--nodes", "40", "--time-scale", "20", "--any-ports", "--no-web"]
    with subprocess.Popen(
        [*WEFT, "up", *flags, "--dir", str(folder), "--trace", str(trace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = ""
        for line in process.stdout:
            if line.startswith("rm "):
                address = line.split()[2]
            if line.startswith("submit with"):
                break
        with Client(address) as client:
            app = client.submit(job_from_dict(data))
            assert client.wait([app])[app].final_status == "SUCCEEDED"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "10,000 tasks" in said
    run = weft.results.load(folder)
    rows = run.tasks.to_pylist()
    assert len(rows) == 10_000
    stopped = [
        json.loads(line)
        for log in folder.glob("nm*.events")
        for line in log.read_text().splitlines()
        if '"TaskStopped"' in line
    ]
    ends = sorted((f["node"], f["now_s"]) for f in stopped if f["stage"] >= 0)
    assert sorted((r["node"], r["end_s"]) for r in rows) == ends
    events = json.loads(trace.read_text())["traceEvents"]
    nodes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    slices = [e for e in events if e["ph"] == "X"]
    assert sorted(
        (nodes[e["pid"]], e["name"], e["ts"], e["ts"] + e["dur"], e["args"]["state"])
        for e in slices
    ) == sorted(
        (
            r["node"],
            f"{r['stage']}[{r['index']}]",
            round(r["start_s"] * 1e6),
            round(r["end_s"] * 1e6),
            r["state"],
        )
        for r in rows
    )
    assert run.jobs["state"].to_pylist() == ["SUCCEEDED"]


def test_a_shell_completes_what_the_cluster_has(address: str) -> None:
    with Client(address) as client:
        app = client.submit(job_from_dict(job("completed", "true")))
        client.wait([app])

    def completed(*words: str) -> list[str]:
        asked = {"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("weft", *words))}
        env = os.environ | asked | {"COMP_CWORD": str(len(words)), "WEFT_RM_ADDRESS": address}
        done = subprocess.run(WEFT, env=env, capture_output=True, text=True, check=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert str(app) in completed("kill", str(app))
    assert "graphene" in completed("simulate", "--scheduler", "graph")
    assert "root.default" in completed("submit", "--queue", "root")
