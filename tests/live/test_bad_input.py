"""Bad input gets one clear line that names the place, exit code 2, and nothing is submitted."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.forked import weft
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import WeftError


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running cluster of small nodes."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(LocalSettings(cluster="2x4vcores,4096memory_mb"), folder) as cluster:
        yield cluster.address


def one(**changes: object) -> dict[str, object]:
    """A job of one stage, with changes to the stage."""
    base = {"name": "a", "tasks": 1, "duration_s": 1, "demand": {"vcores": 1, "memory_mb": 64}}
    return {"name": "j", "stages": [base | changes]}


CASES: dict[str, tuple[object, str]] = {
    "cycle": (
        {
            "name": "j",
            "stages": [
                {"name": "a", "tasks": 1, "duration_s": 1, "parents": ["b"]},
                {"name": "b", "tasks": 1, "duration_s": 1, "parents": ["a"]},
            ],
        },
        "cycle",
    ),
    "unknown parent": (one(parents=["x"]), "'x'"),
    "duplicate stage": (
        {"name": "j", "stages": [{"name": "a", "tasks": 1, "duration_s": 1}] * 2},
        "twice",
    ),
    "negative": (one(duration_s=-1), "duration_s"),
    "not a number": (
        '{"name": "j", "stages": [{"name": "a", "tasks": 1, "duration_s": NaN}]}',
        "NaN",
    ),
    "infinite": (one(demand={"vcores": 1e999}), "Infinity"),
    "zero tasks": (one(tasks=0), "tasks"),
    "too large for any node": (one(demand={"vcores": 64, "memory_mb": 64}), "vcores"),
    "unknown resource": (one(demand={"gpus": 1}), "gpus"),
    "unknown queue": ({**one(), "queue": "nowhere"}, "nowhere"),
    "unknown key": (one(durations_s=3), "durations_s"),
    "invalid JSON": ('{"name": "j", ', "JSON"),
    "not UTF-8": (b'{"name": "\xff\xfe"}', "UTF-8"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_jobs_are_refused_in_one_line(name: str, address: str, tmp_path: Path) -> None:
    """A good job beside the bad one is not submitted either."""
    content, words = CASES[name]
    path, good = tmp_path / "bad.json", tmp_path / "good.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    good.write_text(json.dumps(one()))
    done = weft("submit", "--rm", address, str(good), str(path))
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    with Client(address) as client:
        assert client.applications(["NEW", "SUBMITTED", "ACCEPTED", "RUNNING", "FINISHED"]) == ()


BEYOND = "9" * 25  # no number of the wire holds it


@pytest.mark.parametrize(
    "words",
    [
        "app {}",
        "kill {}",
        "explain {}",
        "logs {}",
        "priority 1 {}",
        "move {} default",
        "apps --limit {}",
        "events --app {}",
    ],
)
def test_a_number_beyond_the_wire_is_refused_in_one_line(words: str, address: str) -> None:
    """What the client cannot say is bad input, and the line names the number."""
    command, *rest = words.format(BEYOND).split()
    done = weft(command, *rest, "--rm", address)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert BEYOND in done.stderr


def test_an_id_of_another_cluster_names_nobody_here(address: str, tmp_path: Path) -> None:
    """The number is an application of this cluster, the timestamp is not: it is left alone."""
    path = tmp_path / "good.json"
    path.write_text(json.dumps(one(duration_s=3600)))
    own = weft("submit", "--rm", address, str(path)).stdout.strip()
    number = own.rpartition("_")[2]
    for words in ("kill {}", "app {}", "priority {} 5", "move {} default", "explain {}"):
        command, *rest = words.format(f"application_1_{number}").split()
        done = weft(command, *rest, "--rm", address)
        assert done.returncode == 2, (words, done.stdout)
        assert "another cluster" in done.stderr
        assert own.rpartition("_")[0] in done.stderr
    with Client(address) as client:
        assert client.application(int(number)).state != "KILLED"
    assert weft("kill", own, "--rm", address).stdout.split() == [own, "KILLED"]


def test_a_huge_file_is_refused_in_one_line(address: str, tmp_path: Path) -> None:
    """100 MB of JSON are not read whole."""
    path = tmp_path / "huge.json"
    path.write_text('{"name": "' + "x" * 100_000_000 + '"}')
    done = weft("submit", "--rm", address, str(path))
    assert done.returncode == 2
    assert "huge.json" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_invalid_yaml_names_the_line(tmp_path: Path) -> None:
    """The parser's own place is told."""
    path = tmp_path / "bad.yaml"
    path.write_text("name: j\nstages:\n  - name: [\n")
    done = weft("submit", str(path))
    assert done.returncode == 2
    assert "bad.yaml" in done.stderr
    assert "line" in done.stderr


def test_a_manager_that_is_not_there_is_named(tmp_path: Path) -> None:
    """One line, exit code 1, with the address."""
    path = tmp_path / "good.json"
    path.write_text(json.dumps(one()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = weft("submit", "--rm", f"127.0.0.1:{port}", str(path))
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """The cluster does not start, and says why."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = LocalSettings(nodes=1, flags={"rm": [f"port={port}"]})
        with (
            pytest.raises(WeftError, match=f"{port}"),
            LocalCluster(settings, tmp_path),
        ):
            pass


@pytest.mark.parametrize("option", ["--scheduler", "--cluster"])
def test_an_unknown_scheduler_or_cluster_is_named(option: str) -> None:
    """Before anything stays running."""
    done = weft("up", option, "no-such-thing", "--any-ports")
    assert done.returncode == 2, done.stderr
    assert "no-such-thing" in done.stderr


def test_a_folder_serves_one_cluster_at_a_time(tmp_path: Path) -> None:
    """The second one touches nothing of the first, which goes on; afterwards the folder is free."""
    settings = LocalSettings(nodes=1)
    with LocalCluster(settings, tmp_path) as first:
        known = sorted(tmp_path.glob("*.ready"))
        assert known
        with pytest.raises(WeftError, match="in use by another cluster"):
            LocalCluster(settings, tmp_path).__enter__()
        assert sorted(tmp_path.glob("*.ready")) == known
        with Client(first.address) as client:
            assert client.metrics().nodes == {"RUNNING": 1}
    with LocalCluster(settings, tmp_path) as again:
        assert again.address
