"""Every kind of bad input on the command line and in files: one clear line, the right exit code."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from lab import cli
from weft.client.numeric_options import Finite

GOOD = {
    "name": "j",
    "stages": [
        {"name": "a", "tasks": 2, "duration_s": 1, "demand": {"vcores": 1, "memory_mb": 64}}
    ],
}
CLUSTER = "2x4vcores,4096memory_mb"
SIMULATE = ["simulate", "good.json", "--cluster", CLUSTER]
PLAN = ["plan", "good.json", "--cluster", CLUSTER]
NOWHERE = ["--rm", "127.0.0.1:1"]

# name -> (arguments, words that the line holds)
COMMANDS: dict[str, tuple[list[str], str]] = {
    "unknown command": (["simulat"], "simulat"),
    "unknown option": (["apps", "--stat", "RUNNING"], "--stat"),
    "no such tape": (["replay", "no.tape"], "no.tape"),
    "a tape that is none": (["replay", "/dev/null"], "is no tape"),
    "a folder without tapes": (["replay", "."], "holds no tape"),
    "what if of no tape": (["whatif", "no.tape"], "no.tape"),
    "replay until when": (["replay", "x", "--until", "soon"], "soon"),
    "replay until nan": (["replay", "x", "--until", "nan"], "finite number, got 'nan'"),
    "what if at infinity": (["whatif", "x", "--at", "inf"], "finite number, got 'inf'"),
    "hours of nan": (["login", "--hours", "nan"], "finite number, got 'nan'"),
    "missing argument": (["submit"], "JOB"),
    "missing value": (["apps", "--limit"], "--limit"),
    "negative limit": (["apps", "--limit", "-3"], "-3"),
    "limit that is no number": (["apps", "--limit", "many"], "many"),
    "negative event limit": (["events", "--limit", "-1"], "-1"),
    "unknown application state": (["apps", "--state", "BOGUS"], "'BOGUS'; known: NEW"),
    "unknown node state": (["nodes", "--state", "BOGUS"], "'BOGUS'; known: NEW"),
    "unknown column": (["apps", "--sort", "size"], "unknown column 'size'; known: id"),
    "unknown column of nodes": (["nodes", "--sort", "-x"], "unknown column '-x'; known: node"),
    "unknown column of top": (["top", "--once", "--sort", "x"], "unknown column 'x'"),
    "top every 0 s": (["top", "--every", "0"], "positive"),
    "top every nan s": (["top", "--every", "nan"], "finite number"),
    "negative task": (["logs", "1", "--task", "-1"], "-1"),
    "negative tail": (["logs", "1", "--tail", "-1"], "-1"),
    "unknown stream": (["logs", "1", "--stream", "stdin"], "stdin"),
    "leave and return": (["nodes", "--decommission", "n1", "--recommission", "n1"], "n1"),
    "wait for nothing": (["nodes", "--wait"], "--wait"),
    "bad application id": (["kill", "application_x"], "application_x"),
    "priority that is no number": (["priority", "1", "high"], "high"),
    "time scale 0": (["submit", "good.json", "--replay", "--time-scale", "0"], "positive"),
    "missing job file": (["submit", "no-such.json", *NOWHERE], "no-such.json"),
    "a folder as job file": (["submit", ".", *NOWHERE], "."),
    "empty address": (["apps", "--rm", ""], "host:port"),
    "address without port": (["apps", "--rm", "localhost"], "localhost"),
    "port too large": (["apps", "--rm", "localhost:99999"], "99999"),
    "half of mutual TLS": (["apps", "--tls-cert", "good.json", *NOWHERE], "tls"),
    "0 nodes": (["up", "--nodes", "0"], "--nodes"),
    "negative nodes": (["up", "--nodes", "-2"], "--nodes"),
    "0 processes of nodes": (["up", "--nm-processes", "0"], "--nm-processes"),
    "a clock that stands": (["up", "--time-scale", "0"], "positive"),
    "a clock that runs back": (["demo", "--time-scale", "-1"], "positive"),
    "a setting without value": (["up", "--rm-set", "pace"], "pace"),
    "a parameter of nobody": (["up", "--set", "fairness=1"], "matcher.NAME"),
    "several of this machine": (["up", "--mode", "process", "--nodes", "3"], "one node"),
    "unknown mode": (["up", "--mode", "dream"], "dream"),
    "unknown pace": (["up", "--pace", "slow"], "slow"),
    "no cluster": (["simulate", "good.json"], "--cluster"),
    "unknown scheduler": ([*SIMULATE, "--scheduler", "best"], "unknown scheduler 'best'; known:"),
    "unknown matcher": ([*SIMULATE, "--matcher", "best"], "unknown matcher 'best'; known:"),
    "unknown planner": ([*SIMULATE, "--planner", "best"], "unknown planner 'best'; known:"),
    "unknown asker": ([*SIMULATE, "--asker", "best"], "unknown asker 'best'; known:"),
    "unknown manager setting": ([*SIMULATE, "--set", "manager.foo=1"], "unknown parameter; known:"),
    "unknown master setting": ([*SIMULATE, "--set", "master.foo=1"], "unknown parameter; known:"),
    "unknown node setting": ([*SIMULATE, "--set", "node.foo=1"], "unknown parameter; known:"),
    "unknown matcher parameter": ([*SIMULATE, "--set", "matcher.foo=1"], "unknown parameter"),
    "an unknown parameter as it was typed": (
        [*SIMULATE, "--matcher", "fifo", "--set", "matcher.pul=3"],
        "matcher.pul: unknown parameter of fifo; known: fill",
    ),
    "masters of less than nothing": (
        [*SIMULATE, "--set", "manager.master_vcores=-1"],
        "--set manager.master_vcores: expected a number from 0",
    ),
    "unknown planner parameter": (
        [*SIMULATE, "--set", "planner.foo=1"],
        "planner.foo: unknown parameter of bfs",
    ),
    "unknown parameter of graphene": (
        [*SIMULATE, "--planner", "graphene", "--set", "planner.foo=1"],
        "unknown option; known:",
    ),
    "unknown asker parameter": (
        [*SIMULATE, "--set", "asker.foo=1"],
        "asker.foo: unknown parameter of all_ready",
    ),
    "unknown parameter of cobra": (
        [*SIMULATE, "--scheduler", "cobra", "--set", "asker.foo=1"],
        "known: container, rho",
    ),
    "unknown part": ([*SIMULATE, "--set", "oracle.foo=1"], "matcher.NAME"),
    "a parameter without part": ([*SIMULATE, "--set", "foo=1"], "no such parameter"),
    "a parameter without value": ([*SIMULATE, "--set", "matcher.fairness"], "key=value"),
    "a parameter without name": ([*SIMULATE, "--set", "=1"], "key=value"),
    "a word for a number": ([*SIMULATE, "--set", "manager.heartbeat_s=soon"], "'soon'"),
    "a heartbeat of 0 s": ([*SIMULATE, "--set", "manager.heartbeat_s=0"], "positive"),
    "a heartbeat that moves no clock": (
        [*SIMULATE, "--set", "manager.heartbeat_s=1e-300"],
        "at least 0.001",
    ),
    "a node lost at once": ([*SIMULATE, "--set", "manager.node_expiry_s=0"], "positive"),
    "a master lost at once": ([*SIMULATE, "--set", "manager.master_expiry_s=0"], "positive"),
    "a negative duration": ([*SIMULATE, "--set", "manager.node_expiry_s=-1"], "from 0"),
    "no attempt": ([*SIMULATE, "--set", "manager.max_attempts=0"], "1 to 255"),
    "half an attempt": ([*SIMULATE, "--set", "manager.max_attempts=1.5"], "whole number"),
    "a share above 1": ([*SIMULATE, "--set", "manager.master_share_max=2"], "at most 1"),
    "negative masters": ([*SIMULATE, "--set", "manager.master_vcores=-1"], "from 0"),
    "maybe": ([*SIMULATE, "--set", "master.speculate=maybe"], "true or false"),
    "set elsewhere": ([*SIMULATE, "--set", "manager.prompt=true"], "not set here"),
    "nested": ([*SIMULATE, "--set", "master.estimates.foo=1"], "unknown parameter; known:"),
    "rho of 1": ([*SIMULATE, "--scheduler", "cobra", "--set", "asker.rho=1"], "above 1"),
    "a fairness of 2": (
        [*SIMULATE, "--scheduler", "tetris", "--set", "matcher.fairness=2"],
        "from 0 to 1",
    ),
    "negative jobs": ([*SIMULATE, "--jobs", "-5"], "-5"),
    "negative seed": ([*SIMULATE, "--seed", "-1"], "-1"),
    "negative until": ([*SIMULATE, "--until", "-5"], "positive"),
    "until nan": ([*SIMULATE, "--until", "nan"], "finite number"),
    "load 0": ([*SIMULATE, "--load", "0"], "positive"),
    "load below 1": ([*SIMULATE, "--load", "0.5"], "--load"),
    "unknown arrivals": ([*SIMULATE, "--arrivals", "often"], "often"),
    "a rate of 0": ([*SIMULATE, "--arrivals", "poisson:0"], "poisson:0"),
    "an error without range": ([*SIMULATE, "--estimate-error", "0.5"], "LO:HI"),
    "an error below -1": ([*SIMULATE, "--estimate-error", "-2:0"], "LO:HI"),
    "unknown format": ([*SIMULATE, "--format", "xml"], "xml"),
    "faults of no seed": ([*SIMULATE, "--faults", "random:x"], "random:SEED"),
    "faults before the start": ([*SIMULATE, "--faults", "random:1:-5"], "HORIZON_S above 0"),
    "faults until nan": ([*SIMULATE, "--faults", "random:1:nan"], "HORIZON_S above 0"),
    "a cluster file without end": (
        ["simulate", "good.json", "--cluster", "/dev/zero"],
        "at most 67108864 bytes",
    ),
    "missing fault file": ([*SIMULATE, "--faults", "none.yaml"], "none.yaml"),
    "a folder for a trace": ([*SIMULATE, "--trace", "."], "--trace"),
    "a trace in no folder": ([*SIMULATE, "--trace", "no/t.json"], "there is no folder no"),
    "a live trace in no folder": (["up", "--trace", "no/t.json"], "there is no folder no"),
    "a demo's trace in no folder": (["demo", "--trace", "no/t.json"], "there is no folder no"),
    "a workload without name": (["simulate", "", "--cluster", CLUSTER], "empty name"),
    "an infinite load": ([*SIMULATE, "--load", "inf"], "finite number"),
    "report without folder": ([*SIMULATE, "--report"], "--out"),
    "decisions without folder": ([*SIMULATE, "--decisions"], "--out"),
    "a file for a folder": ([*SIMULATE, "--out", "good.json"], "good.json"),
    "missing workload": (["simulate", "none.jsonl", "--cluster", CLUSTER], "none.jsonl"),
    "missing cluster file": (["simulate", "good.json", "--cluster", "none.yaml"], "none.yaml"),
    "a cluster of too many words": (
        ["simulate", "good.json", "--cluster", "4x" * 5000],
        "File name too long",
    ),
    "a cluster of words": (["simulate", "good.json", "--cluster", "3xlarge"], "3xlarge"),
    "a cluster of 0 nodes": (["simulate", "good.json", "--cluster", "0x4vcores"], "count"),
    "a task too large": (["simulate", "good.json", "--cluster", "1x4vcores,1memory_mb"], "memory"),
    "a plan too large": ([*PLAN[:2], "--cluster", "1x4vcores,1memory_mb"], "memory_mb"),
    "an option of bfs": ([*PLAN, "--planner", "bfs", "--set", "foo=1"], "foo"),
    "unknown planner of plan": ([*PLAN, "--planner", "best"], "unknown planner 'best'"),
    "a negative limit": ([*PLAN, "--time-limit-s", "-1"], "--time-limit-s"),
    "no worker": ([*PLAN, "--workers", "0"], "--workers"),
    "no such job": ([*PLAN, "--job", "k"], "'k'"),
    "a plot of no kind": ([*PLAN, "--plot", "plan.xyz"], "xyz"),
    "no plan file": (["validate", "good.json", "none.json", "--cluster", CLUSTER], "none.json"),
    "no run to compare": (["compare", "nowhere"], "nowhere"),
    "unknown kind": (["generate", "chaos", "--out", "x.jsonl"], "chaos"),
    "0 jobs": (["generate", "production", "--jobs", "0", "--out", "x.jsonl"], "--jobs"),
    "unknown option of a kind": (
        ["generate", "production", "--out", "x.jsonl", "--set", "foo=1"],
        "foo",
    ),
    "unknown import": (["import", "xml", "good.json", "--out", "x.jsonl"], "xml"),
    "missing import": (["import", "spark", "none", "--out", "x.jsonl"], "none"),
    "no grid": (["study", "none.yaml", "--out", "s"], "none.yaml"),
    "unknown bench": (["bench", "luck"], "luck"),
    "unknown case": (["bench", "live", "--case", "luck"], "luck"),
    "case of another bench": (["bench", "match", "--case", "fifo"], "--case"),
}


def changed(**stage: object) -> dict[str, object]:
    return {"name": "j", "stages": [{**GOOD["stages"][0], **stage}]}  # type: ignore[dict-item]


# name -> (what the job file holds, words that the line holds)
FILES: dict[str, tuple[object, str]] = {
    "empty": ("", "job.json"),
    "no JSON": ("{", "job.json"),
    "a list of numbers": ("[1, 2]", "job.json"),
    "a number": ("3", "job.json"),
    "nested too deep": ("[" * 100_000, "job.json"),
    "no name": ({"stages": GOOD["stages"]}, "name"),
    "an empty name": ({**GOOD, "name": ""}, "name"),
    "a name that is a number": ({**GOOD, "name": 3}, "name"),
    "no stage": ({"name": "j", "stages": []}, "stages"),
    "stages of nothing": ({"name": "j"}, "stages"),
    "a key that nobody knows": ({**GOOD, "colour": "red"}, "colour"),
    "a negative count": (changed(tasks=-1), "tasks"),
    "half a task": (changed(tasks=1.5), "tasks"),
    "no task": (changed(tasks=0), "tasks"),
    "a negative duration": (changed(duration_s=-1), "duration_s"),
    "an infinite demand": (changed(demand={"vcores": 1e999}), "vcores"),
    "a demand of words": (changed(demand={"vcores": "many"}), "vcores"),
    "a demand as a list": (changed(demand=[1]), "demand"),
    "a parent of nowhere": (changed(parents=["x"]), "'x'"),
    "its own parent": (changed(parents=["a"]), "a -> a"),
    "an edge of no kind": (changed(parents=[{"stage": "a", "edge": "diag"}]), "diag"),
    "a command of words": (changed(command="ls"), "command"),
    "a truth of the wrong length": (changed(actual_duration_s=[1, 2, 3]), "actual_duration_s"),
    "a negative arrival": ({**GOOD, "arrival_s": -1}, "arrival_s"),
    "no attempt": ({**GOOD, "max_task_attempts": 0}, "max_task_attempts"),
    "a NUL": ({**GOOD, "name": "a\0b"}, "name"),
}


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], tuple[int, str]]:
    """Run the command as `weft` does; returns its exit code and what it wrote to stderr."""
    (tmp_path / "good.json").write_text(json.dumps(GOOD))
    monkeypatch.chdir(tmp_path)

    def run(arguments: list[str]) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["weft", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return code if isinstance(code, int) else 0, capsys.readouterr().err

    return run


def check(code: int, text: str, words: str) -> None:
    lines = [line for line in text.splitlines() if not line.startswith("starting")]
    assert code == 2, text
    assert len(lines) == 1, text
    assert lines[0].startswith("weft: ")
    assert len(lines[0]) < 1000
    assert words.lower() in lines[0].lower(), text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_command_line_gets_one_line(
    name: str, said: Callable[[list[str]], tuple[int, str]]
) -> None:
    arguments, words = COMMANDS[name]
    check(*said(arguments), words)


@pytest.mark.parametrize("name", FILES)
def test_a_bad_job_file_gets_one_line(
    name: str, said: Callable[[list[str]], tuple[int, str]]
) -> None:
    content, words = FILES[name]
    Path("job.json").write_text(content if isinstance(content, str) else json.dumps(content))
    check(*said(["plan", "job.json", "--cluster", CLUSTER]), words)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["tasks.csv", "summary.json"])
def test_a_full_disk_names_the_file_and_leaves_no_half(
    file: str, said: Callable[[list[str]], tuple[int, str]]
) -> None:
    Path("out").mkdir()
    Path(f"out/.{file}.partial").symlink_to("/dev/full")
    code, text = said([*SIMULATE, "--out", "out"])
    assert code == 1
    assert text == f"weft: out/{file}: cannot be written: No space left on device\n"
    assert not Path(f"out/{file}").exists()


def test_a_full_disk_names_the_decision_log(said: Callable[[list[str]], tuple[int, str]]) -> None:
    Path("out").mkdir()
    Path("out/decisions.jsonl").symlink_to("/dev/full")
    code, text = said([*SIMULATE, "--decisions", "--out", "out"])
    assert code == 1
    assert text == "weft: out/decisions.jsonl: cannot be written: No space left on device\n"


def test_a_closed_pipe_ends_a_command_as_sigpipe_would() -> None:
    """As in `weft simulate ... | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [
        sys.executable,
        "-c",
        "from lab.cli import main; main()",
        "simulate",
        "--help",
    ]
    with os.fdopen(writing, "wb") as closed:
        ended = subprocess.run(
            command,
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 141
    assert ended.stderr == b""


def on_a_full_disk(command: list[str], kept: str) -> tuple[int, str]:
    """The exit code and the words of a command whose standard output takes nothing."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, *command],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": kept},
        )
    return ended.returncode, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_full_disk_below_standard_output_is_named_once(kept: str) -> None:
    weft = ["-c", "from lab.cli import main; main()"]
    for command in (["--version"], ["simulate", "--help"], ["fuzz", "--seeds", "0:1", "--json"]):
        code, text = on_a_full_disk([*weft, *command], kept)
        assert (code, text) == (1, "weft: standard output: No space left on device\n")


@pytest.mark.slow
def test_a_process_whose_first_line_finds_a_full_disk_says_so() -> None:
    code, text = on_a_full_disk(["-m", "rm", "--port=0"], "")
    # In a new checkout it may say before that kernels are compiled.
    said = text.splitlines()[-1]
    assert (code, said) == (1, "error: standard output: No space left on device")


@pytest.mark.parametrize("command", [[*PLAN, "--out"], [*SIMULATE, "--trace"]], ids=" ".join)
def test_a_pipe_or_device_is_not_replaced_by_a_file(
    command: list[str], said: Callable[[list[str]], tuple[int, str]]
) -> None:
    os.mkfifo("pipe.json")
    check(*said([*command, "pipe.json"]), "pipe.json is no regular file")
    assert Path("pipe.json").is_fifo()


def test_there_are_a_hundred_kinds() -> None:
    assert len(COMMANDS) + len(FILES) >= 100


def test_no_option_takes_what_is_no_number() -> None:
    """Whatever command gets a float option next."""
    group = cli.weft
    checked = 0
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        for param in command.params:
            if isinstance(param.type, click.types.FloatParamType):
                checked += 1
                assert isinstance(param.type, Finite), (name, param.name)
                with pytest.raises(click.BadParameter, match="expected a finite number"):
                    param.type.convert("nan", param, None)
    assert checked > 10
