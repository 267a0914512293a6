"""The image and its composition keep the house's rules, and its probe tells the truth.

`make image-test` builds the image and runs the composed cluster through faults.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.live import Cluster

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
PROBE = ROOT / "deploy" / "probe.py"


def test_the_image_builds_in_stages_for_nobody_special() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases == ["python:3.12-slim-bookworm"] * 3
    assert "USER weft" in lines
    assert not [line for line in lines if line.startswith("# syntax")]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_may_do_little_and_is_pinned(name: str) -> None:
    service: dict[str, Any] = SERVICES[name]
    assert service["read_only"] is True
    assert service["user"].partition(":")[0] not in ("0", "root")
    assert service["cap_drop"] == ["ALL"]
    tag = service["image"].rpartition(":")[2]
    assert tag not in ("latest", service["image"])


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"demo"}))
def test_a_service_says_whether_it_is_well(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"rm", "etcd"}))
def test_services_start_in_order(name: str) -> None:
    waits = SERVICES[name]["depends_on"]
    assert {need["condition"] for need in waits.values()} == {"service_healthy"}


def test_several_managers_share_a_store_by_one_file() -> None:
    """`--env-file deploy/ha.env`: the profile, the store, and the list that everybody is told."""
    lines = (ROOT / "deploy" / "ha.env").read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert told["COMPOSE_PROFILES"] == "ha"
    managers = [name for name, one in SERVICES.items() if "rm" in one.get("command", ())[:3]]
    assert told["WEFT_MANAGERS"] == ",".join(f"{name}:8030" for name in managers)
    assert len(managers) == 2
    for name in managers:
        assert "--store=${WEFT_STORE:-}" in SERVICES[name]["command"]
        assert f"--advertise={name}:8030" in SERVICES[name]["command"]
    for name in ("am", "nm", "web"):
        assert "--manager=${WEFT_MANAGERS:-rm:8030}" in SERVICES[name]["command"]
    assert {SERVICES[name]["profiles"][0] for name in ("etcd", managers[1])} == {"ha"}


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_compose_accepts_the_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker command")
    profiles = ["--profile", "demo", "--profile", "ha"]
    command = ["docker", "compose", *profiles, "config", "-q"]
    asked = subprocess.run([*command[:2], "version"], capture_output=True, check=False)
    if asked.returncode:
        pytest.skip("no Compose v2")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def probe(*arguments: str) -> int:
    done = subprocess.run([sys.executable, str(PROBE), *arguments], check=False, timeout=60)
    return done.returncode


def test_the_probe_tells_a_live_service_from_a_dead_one(cluster: Cluster) -> None:
    manager = cluster.manager()
    url = f"http://{manager.ready['metrics']}/metrics"
    assert probe("grpc", manager.address) == 0
    assert probe("http", url) == 0
    manager.stop()
    assert probe("grpc", manager.address) == 1
    assert probe("http", url) == 1
    assert probe("grpc") == 2


@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    os.environ.get("WEFT_IMAGE_TEST") != "1", reason="`make image-test`, or set WEFT_IMAGE_TEST=1"
)
def test_the_composed_cluster_survives_faults() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "check_image.py")], check=False)
    assert done.returncode == 0
