"""A container's files: brought once for whom they are, checked, kept within a bound."""

import http.server
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.yarn.localise import Failure, Places, localise, places, trim

MB = 1 << 20
# A container: brings a file, says so, and runs until its input ends.
CONTAINER = """
import json, os, sys
from pathlib import Path
from weft.yarn.localise import localise, places
root, home, user, resources, bound = json.loads(sys.argv[1])
work = Path(home) / f"work{os.getpid()}"; work.mkdir(parents=True, exist_ok=True)
where = places(Path(root), Path(home), user)
print(*localise(resources, work, where, bound), flush=True)
sys.stdin.read()
"""


class Served:
    """Files over HTTP, and how often each was asked for."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked[self.path] += 1
                size = int(self.path.rpartition("-")[2])
                self.send_response(200)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                self.wfile.write(bytes(size))

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def resource(self, path: str, visibility: str, **more: Any) -> dict[str, Any]:
        size = int(path.rpartition("-")[2])
        url = f"http://127.0.0.1:{self.server.server_port}/{path}"
        return {
            "name": path.replace("/", "_"),
            "url": url,
            "size": size,
            "timestamp_ms": 0,
            "kind": "file",
            "visibility": visibility,
        } | more


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.server.shutdown()
    made.server.server_close()


def start(
    tmp_path: Path, app: str, resources: list[dict[str, Any]], user: str = "ada", bound: int = MB
) -> "subprocess.Popen[str]":
    root = tmp_path / "root"
    (root / "filecache").mkdir(parents=True, exist_ok=True)
    told = json.dumps([str(root), str(root / app), user, resources, bound])
    return subprocess.Popen(
        [sys.executable, "-c", CONTAINER, told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(container: "subprocess.Popen[str]") -> str:
    said = container.communicate()[0].strip()
    assert container.returncode == 0
    return said


@pytest.mark.slow
def test_who_shares_what(tmp_path: Path, served: Served) -> None:
    """Public files once a node, private ones once a user, an application's once for itself."""
    resources = [
        served.resource("public-10", "public"),
        served.resource("private-10", "private"),
        served.resource("own-10", "application"),
        served.resource("staging/application_1_0001/conf-10", "public"),
    ]
    assert end(start(tmp_path, "application_1_0001", resources)) == "4 0"
    assert end(start(tmp_path, "application_1_0001", resources)) == "0 4"
    assert end(start(tmp_path, "application_1_0002", resources[:3])) == "1 2"
    assert end(start(tmp_path, "application_1_0003", resources[:3], user="bob")) == "2 1"
    shared = sorted(path.name for path in tmp_path.glob("root/filecache/*/*/*"))
    assert shared == ["private-10", "private-10", "public-10"]
    assert served.asked["/public-10"] == 1
    assert served.asked["/private-10"] == 2


def test_without_a_place_to_share_each_application_has_its_own(tmp_path: Path) -> None:
    """So in a sandbox, where the node's root is empty."""
    found = places(tmp_path / "root", tmp_path / "application_1_0001", "ada")
    assert found.shared is None
    assert found.of({"visibility": "public", "url": "http://x/y"}) == found.application


@pytest.mark.slow
def test_many_containers_at_once_fetch_a_file_once(tmp_path: Path, served: Served) -> None:
    resources = [served.resource("jar-100000", "public")]
    started = [start(tmp_path, f"application_1_000{n % 2}", resources) for n in range(6)]
    assert sorted(end(one) for one in started) == ["0 1"] * 5 + ["1 0"]
    assert served.asked == {"/jar-100000": 1}


@pytest.mark.slow
def test_the_bound_spares_what_runs_and_takes_the_oldest(tmp_path: Path, served: Served) -> None:
    a, b, c = (served.resource(f"{name}-400000", "public") for name in "abc")
    runs = start(tmp_path, "application_1_0001", [a])
    assert runs.stdout is not None
    assert runs.stdout.readline().strip() == "1 0"
    cache = tmp_path / "root/filecache/public"
    end(start(tmp_path, "application_1_0002", [b]))
    (of_b,) = {path.parent for path in cache.glob("*/b-400000")}
    for path in cache.glob("*.use"):
        os.utime(path, (1, 1))
    os.utime(of_b.with_suffix(".use"), (2, 2))  # a is older, but it runs
    end(start(tmp_path, "application_1_0003", [c], bound=MB))
    assert {path.name for path in cache.glob("*/*-400000")} == {"a-400000", "c-400000"}
    assert len(list(cache.glob("*.lock"))) == 2, "nothing of what went is left"
    runs.kill()  # however a container ends, its files may go
    runs.communicate()
    trim(cache.parent, 0)
    assert list(cache.iterdir()) == []
    assert end(start(tmp_path, "application_1_0004", [a])) == "1 0", "and come back"


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    """Size and time stamp are what the submitter saw, as YARN holds it."""
    source = tmp_path / "job.py"
    source.write_text("print()")
    right = {
        "name": "job.py",
        "url": f"file://{source}",
        "size": 7,
        "timestamp_ms": int(source.stat().st_mtime * 1000),
        "kind": "file",
        "visibility": "private",
    }
    where = Places(tmp_path / "own", None, "ada", "application_1_0001")
    (work := tmp_path / "work").mkdir()
    for wrong in ({"size": 8}, {"timestamp_ms": right["timestamp_ms"] - 5000}):
        with pytest.raises(Failure, match="changed"):
            localise([right | wrong], work, where, MB)
    with pytest.raises(Failure, match="outside"):
        localise([right | {"name": "../x"}], work, where, MB)
    assert localise([right], work, where, MB) == (1, 0)
    assert (work / "job.py").read_text() == "print()"


def test_an_archive_is_unpacked_within_its_folder(tmp_path: Path) -> None:
    packed = tmp_path / "libs.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("lib/a.txt", "a")
        archive.writestr("../../escaped.txt", "no")
    one = {
        "name": "libs",
        "url": f"file://{packed}",
        "size": packed.stat().st_size,
        "timestamp_ms": int(packed.stat().st_mtime * 1000),
        "kind": "archive",
        "visibility": "public",
    }
    (tmp_path / "shared").mkdir()
    (work := tmp_path / "work").mkdir()
    where = Places(tmp_path / "app" / "own", tmp_path / "shared", "ada", "application_1_0001")
    assert localise([one], work, where, MB) == (1, 0)
    assert (work / "libs/lib/a.txt").read_text() == "a"
    assert [path.parent.name for path in tmp_path.rglob("escaped.txt")] == ["libs.zip"]
