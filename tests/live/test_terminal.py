"""What a person sees in a terminal: bars, colours, widths, Ctrl-C, a cluster that is left on."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.live import until
from testkit.terminal import in_terminal
from weft.client.detached import start_detached, told_of_end
from weft.client.local import LocalCluster, LocalSettings
from weft.policies import first_compile

CLUSTER = "2x4vcores,8192memory_mb"
GRID = {"workloads": ["jobs.json"], "clusters": [CLUSTER], "schedulers": ["fifo", "fair"]}
JOB: dict[str, Any] = {
    "name": "small",
    "stages": [
        {"name": "a", "tasks": 4, "duration_s": 2, "demand": {"vcores": 1, "memory_mb": 512}}
    ],
}
# A bare reset is none: numba's colorama writes one at the end of every process.
COLOUR = re.compile(r"\x1b\[[1-9][0-9;]*m")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.json").write_text(json.dumps(JOB))
    (tmp_path / "grid.json").write_text(json.dumps(GRID))
    return tmp_path


LONG = {
    "study": ["study", "grid.json", "--out", "rows"],
    "simulate": ["simulate", "jobs.json", "--cluster", CLUSTER],
    "plan": ["plan", "jobs.json", "--cluster", CLUSTER],
    "fuzz": ["fuzz", "--seeds", "0:3"],
}


@pytest.mark.parametrize("command", LONG)
@pytest.mark.parametrize("columns", [80, 30])
def test_a_long_command_ends_well_in_a_terminal(folder: Path, command: str, columns: int) -> None:
    code, sent = in_terminal(LONG[command], folder, columns=columns)
    assert code == 0, sent
    assert "Traceback" not in sent


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_colours_are_for_those_who_want_them(folder: Path, environment: dict[str, str]) -> None:
    _, sent = in_terminal(LONG["simulate"], folder, environment=environment)
    assert bool(COLOUR.search(sent)) == (not environment)


def test_ctrl_c_ends_a_simulation_in_one_line(folder: Path) -> None:
    many = {**JOB, "stages": [{**JOB["stages"][0], "tasks": 300_000}]}
    (folder / "jobs.json").write_text(json.dumps(many))
    code, sent = in_terminal(LONG["simulate"], folder, interrupt_at="simulating")
    assert code == 130, sent
    assert "Traceback" not in sent
    assert "weft: interrupted" in sent


def weft(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_help_is_printed_as_help(folder: Path) -> None:
    bare = weft(folder)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert "\n  submit " in bare.stdout
    asked = weft(folder, "simlate")
    assert asked.returncode == 2
    assert "Did you mean simulate" in asked.stderr


def test_a_cluster_that_is_left_on_serves_until_it_is_taken_down(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    started = weft(folder, "up", "--detach", "--any-ports", "--no-web", "--nodes", "2")
    assert started.returncode == 0, started.stderr
    [address] = re.findall(r"weft down --rm (\S+)", started.stdout)
    try:
        done = weft(folder, "submit", "jobs.json", "--wait", "--rm", address)
        assert done.returncode == 0, done.stderr
        [record] = folder.glob(f"weft-*/up-{address}.json")
        said = Path(json.loads(record.read_text())["log"]).read_text()
        assert started.stdout.splitlines()[0] in said, "its addresses are found in its log"
        assert f"weft down --rm {address} ends the cluster\n" in said
        assert "Ctrl-C" not in said
    finally:
        ended = weft(folder, "down", "--rm", address)
    assert ended.returncode == 0, ended.stderr
    [removed] = re.findall(r"its folder (\S+) is removed", ended.stderr)
    assert f"logs in {removed}; removed when it ends" in started.stdout
    assert not Path(removed).exists()
    gone = weft(folder, "apps", "--rm", address, "--connect-timeout", "0.1")
    assert gone.returncode == 1
    again = weft(folder, "down", "--rm", address)
    assert again.returncode == 2
    assert address in again.stderr


def test_a_detached_cluster_that_died_is_named_by_who_finds_nobody(folder: Path) -> None:
    started = weft(folder, "up", "--detach", "--any-ports", "--no-web", "--nodes", "1")
    assert started.returncode == 0, started.stderr
    [address] = re.findall(r"weft down --rm (\S+)", started.stdout)
    [logs] = re.findall(r"logs in (\S+); removed", started.stdout)
    told = json.loads((Path(logs) / "nm0.ready").read_text())
    os.kill(told["pid"], signal.SIGKILL)
    how = (
        "nm0 was ended by SIGKILL, and logged no error "
        "(its log goes with the cluster: --dir keeps one)"
    )

    def unanswered() -> str:
        return weft(folder, "apps", "--rm", address, "--connect-timeout", "0.1").stderr

    until(lambda: f"has ended: {how} (see " in unanswered(), "commands name it")
    ended = weft(folder, "down", "--rm", address)
    assert ended.returncode == 0
    assert ended.stderr.startswith(f"it had ended before: {how}; ")
    assert weft(folder, "down", "--rm", address).returncode == 2


def test_a_detached_command_that_was_killed_said_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    log = tmp_path / "up.log"
    with subprocess.Popen(["true"]) as process:
        record = {"address": "127.0.0.1:1", "pid": process.pid, "created_s": 1.0, "log": str(log)}
    home = tmp_path / f"weft-{os.getuid()}"
    home.mkdir(mode=0o700)
    (home / "up-127.0.0.1:1.json").write_text(json.dumps(record))
    for wrote, why in (("Ctrl-C ends it\n", "it did not say why"), ("a\nweft: no\n", "no")):
        log.write_text(wrote)
        said = told_of_end("no Resource Manager at 127.0.0.1:1: connection refused")
        assert said == f"what `weft up --detach` started has ended: {why} (see {log})"
    for other in ("127.0.0.1:2", "127.0.0.1:11"):
        assert told_of_end(f"no Resource Manager at {other}: connection refused") == ""


@pytest.mark.parametrize("role", ["rm", "am", "nm0", "hadoop"])
def test_what_dies_is_started_again_where_the_state_is_kept(folder: Path, role: str) -> None:
    up = ["up", "--detach", "--any-ports", "--no-web", "--nodes", "1", "--dir", "kept"]
    up += ["--mode", "process", "--hadoop"] if role == "hadoop" else []
    started = weft(folder, *up)
    assert started.returncode == 0, started.stderr
    [address] = re.findall(r"weft down --rm (\S+)", started.stdout)
    try:
        submitted = weft(folder, "submit", "jobs.json", "--rm", address)
        assert submitted.returncode == 0, submitted.stderr
        told = json.loads((folder / f"kept/{role}.ready").read_text())
        os.kill(told["pid"], signal.SIGKILL)
        log = folder / "kept/up.log"
        until(lambda: f"{role} was ended by SIGKILL: started again" in log.read_text(), "mended")
        done = weft(folder, "submit", "jobs.json", "--wait", "--rm", address)
        assert done.returncode == 0, done.stderr

        def ends() -> list[str]:
            rows = json.loads(weft(folder, "apps", "--rm", address, "--json").stdout)
            return [row["final_status"] for row in rows]

        until(lambda: ends() == ["SUCCEEDED"] * 2, "what ran goes on or begins anew")
    finally:
        ended = weft(folder, "down", "--rm", address)
    assert ended.stderr == f"ended; its state and logs are in {folder}/kept\n"


@pytest.mark.parametrize(
    ("script", "wrote", "told"),
    [
        ("kill -9 $$", "11:20:08 [info ] AppChanged", "was ended by SIGKILL, and logged no error"),
        ("exit 3", "error: no\nlate", "ended with exit code 3: no"),
        ("exit 1", "x [error    ] bad\n11:20 [info ] late", "ended with exit code 1: x [error"),
        ("exit 1", "the end", "ended with exit code 1: the end"),
    ],
)
def test_how_a_process_ended_is_told_with_its_own_last_error(
    tmp_path: Path, script: str, wrote: str, told: str
) -> None:
    cluster = LocalCluster(LocalSettings(), tmp_path)
    cluster.output("rm").write_text(wrote)
    cluster.processes["rm"] = process = subprocess.Popen(["sh", "-c", script])
    process.wait()
    said = cluster.failed()
    assert said.startswith(f"rm {told}")
    assert said.endswith(f"(its log: {tmp_path}/rm.log)")


def test_who_waits_for_a_detached_cluster_is_told_that_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words of an earlier start in the same folder are not told again."""
    up = tmp_path / "up"
    up.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys, time\n"
        f"print({first_compile.TEXT!r}, file=sys.stderr, flush=True)\n"
        f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)\n"
        "told = {'address': '127.0.0.1:1', 'endpoints': '', 'goes': ''}\n"
        "ready = pathlib.Path(os.environ['WEFT_UP_READY'])\n"
        "ready.with_suffix('.new').write_text(json.dumps(told))\n"
        "ready.with_suffix('.new').rename(ready)\n"
    )
    up.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(up))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    said: list[str] = []

    def echo(text: str, err: bool = False) -> None:
        said.append(text)
        (tmp_path / "go").touch()

    monkeypatch.setattr("weft.client.detached.click.echo", echo)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/up.log").write_text(f"{first_compile.TEXT}\n")
    start_detached([], tmp_path / "kept")
    assert said == [first_compile.TEXT]


def test_a_cluster_that_cannot_start_says_why(folder: Path) -> None:
    started = weft(folder, "up", "--detach", "--scheduler", "nix")
    assert started.returncode == 1
    assert "unknown scheduler 'nix'" in started.stderr


@pytest.mark.parametrize("at", ["0/40", "2/40"])
def test_ctrl_c_ends_a_study_at_once_and_says_what_is_kept(folder: Path, at: str) -> None:
    """While its workers start and while they work, also where somebody presses twice."""
    many = {**JOB, "stages": [{**JOB["stages"][0], "tasks": 3_000}]}
    (folder / "jobs.json").write_text(json.dumps(many))
    grid = {**GRID, "schedulers": ["fifo"], "seeds": list(range(40))}
    (folder / "grid.json").write_text(json.dumps(grid))
    code, sent = in_terminal(LONG["study"], folder, columns=100, interrupt_at=at, times=2)
    assert code == 130, sent
    assert "Traceback" not in sent
    kept = folder / "rows/rows.jsonl"
    rows = kept.read_text().splitlines() if kept.is_file() else []
    assert f"{len(rows)} of 40 rows are kept in rows; the same command goes on" in sent
    assert len(rows) < 12, "nothing that was handed in is run to its end"
    if rows:
        again = in_terminal(LONG["study"], folder, columns=100, interrupt_at="already")
        assert f"{len(rows)} of 40 rows are there already in rows" in again[1]
