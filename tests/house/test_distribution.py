"""What `pip install weft-rm` brings, and that it runs outside the checkout."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import make_dist

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = {"weft", "rm", "am", "nm", "sim", "lab"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    make_dist.make(folder)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_product_and_nothing_else(dist):
    (wheel,) = dist.glob("weft_rm-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == PRODUCT
    assert "weft/client/samples/tpch/q03.json" in names
    assert any(name.startswith("weft/web/static/") for name in names)
    for package in ("weft", "rm", "am", "nm", "sim", "lab"):
        assert f"{package}/py.typed" in names
    python = [str(p.relative_to(ROOT)) for top in PRODUCT for p in (ROOT / top).rglob("*.py")]
    assert set(python) <= set(names), f"left out: {sorted(set(python) - set(names))}"


@pytest.mark.slow
def test_the_sdist_builds_what_the_wheel_is(dist):
    (sdist,) = dist.glob("weft_rm-*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert tops >= PRODUCT
    assert not tops & {"tests", "testkit", "docs"}


@pytest.mark.slow
def test_a_commit_gives_the_same_bytes(dist, tmp_path, monkeypatch):
    monkeypatch.setattr(make_dist, "DIST", dist)
    assert make_dist.same(native=False) == 0


@pytest.mark.slow
def test_it_runs_outside_the_checkout(dist, tmp_path):
    (wheel,) = dist.glob("weft_rm-*.whl")
    site = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--disable-pip-version-check",
            "--target",
            site,
            wheel,
        ],
        check=True,
    )
    job = site / "weft" / "client" / "samples" / "tpch" / "q03.json"
    # kernels of a new folder would be compiled anew, which takes a minute
    env = dict(os.environ) | {"PYTHONPATH": str(site), "NUMBA_DISABLE_JIT": "1"}
    cluster = ("--cluster", "4x8vcores,16384memory_mb,400disk_mbps,400network_mbps")

    def weft(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, site / "bin" / "weft", *map(str, words)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )

    where = subprocess.run(
        [sys.executable, "-c", "import weft; print(weft.__file__)"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(site)
    assert weft("--version").stdout.startswith("weft, version ")
    ran = weft("simulate", job, *cluster, "--scheduler", "tetris", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["states"] == {"SUCCEEDED": 1}
    planned = weft("plan", job, *cluster, "--planner", "bfs", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["makespan_s"] > 0


def test_the_protos_compile_as_they_lie(tmp_path):
    files = sorted((ROOT / "proto").glob("*.proto"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            "-I",
            ROOT / "proto",
            f"--python_out={tmp_path}",
            *files,
        ],
        check=True,
    )
    assert len(list(tmp_path.glob("*_pb2.py"))) == len(files)
