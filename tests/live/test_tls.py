"""A whole cluster of real processes over mutual TLS runs jobs, and lets nobody else in."""

import json
import os
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from testkit import forked
from testkit.live import Cluster, assert_ran_right, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.client.certificates import make
from weft.client.local import LocalCluster, LocalSettings
from weft.wire import tls

MEMORY_MB = 16384.0
NODE = f"--cluster=1x8vcores,{MEMORY_MB:.0f}memory_mb,800disk_mbps,1000network_mbps"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """One host's three files; this test is that host as well."""
    folder = tmp_path / "tls"
    make(folder, [], others={"emulator": ["n1"], "manager": ["n1"]})
    found = {"ca": folder / "ca.pem", "cert": folder / "n1.pem", "key": folder / "n1-key.pem"}
    with tls.using(tls.read(found["ca"], found["cert"], found["key"])):
        yield found


def weft(*arguments: str) -> forked.Said:
    """Run the command as a user without certificates would."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_TLS_")}
    return forked.weft(*arguments, environment=plain)


@pytest.mark.parametrize("launch", ["hosted", "process"])
def test_jobs_run_over_mutual_tls(cluster: Cluster, files: dict[str, Path], launch: str) -> None:
    flags = [f"--tls-{what}={path}" for what, path in files.items()]
    manager = cluster.manager(*flags)
    host = cluster.host(manager, *flags)
    cluster.nodes(
        manager,
        f"--am-host={host.address}",
        "--nodes=2",
        NODE,
        f"--launch={launch}",
        f"--work-dir={cluster.folder / 'work'}",
        "--master-args=--resend-s=1",
        *flags,
    )
    job = chain("sealed", 2, 10, 0.02)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        app = client.submit(job)
        assert client.wait([app])[app].final_status == "SUCCEEDED"

    refused = weft("apps", "--rm", manager.address)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"weft: no Resource Manager at {manager.address}: "
        "it hung up: does it want TLS (--tls-ca, --tls-cert, --tls-key)?\n"
    )
    welcome = weft("apps", "--json", "--rm", manager.address, *flags)
    assert welcome.returncode == 0, welcome.stderr
    assert [found["state"] for found in json.loads(welcome.stdout)] == ["FINISHED"]
    for part in cluster.parts:
        assert part.stop() == 0
    assert_ran_right(cluster.events(), app, job, MEMORY_MB)


def test_renewed_certificates_are_taken_up_under_load_without_a_failed_call(
    cluster: Cluster, files: dict[str, Path]
) -> None:
    """Every part shows the new one to who connects; jobs before, meanwhile and after end well."""
    flags = [f"--tls-{what}={path}" for what, path in files.items()]
    manager = cluster.manager(*flags)
    host = cluster.host(manager, *flags)
    nodes = cluster.nodes(
        manager,
        f"--am-host={host.address}",
        "--nodes=2",
        NODE,
        *flags,
    )

    def shown(address: str) -> int:
        place, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=files["ca"])
        context.load_cert_chain(files["cert"], files["key"])
        with (
            socket.create_connection((place, int(port)), 20) as plain,
            context.wrap_socket(plain, server_hostname=place) as secure,
        ):
            told = secure.getpeercert(binary_form=True)
        assert told is not None
        return x509.load_der_x509_certificate(told).serial_number

    before = x509.load_pem_x509_certificate(files["cert"].read_bytes()).serial_number
    assert {shown(part.address) for part in (manager, host, nodes)} == {before}
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        apps = [client.submit(chain(f"before{i}", 4, 8, 0.3)) for i in range(3)]
        files["cert"].unlink()
        make(files["ca"].parent, [], others={"emulator": ["n1"], "manager": ["n1"]})
        after = x509.load_pem_x509_certificate(files["cert"].read_bytes()).serial_number
        assert after != before
        for part in (manager, host, nodes):
            until(lambda part=part: shown(part.address) == after, f"{part.role} shows the new one")
        manager_log = manager.log
        until(lambda: "renewed certificates" in manager_log.read_text(), "it is said")
        apps += [client.submit(chain(f"after{i}", 2, 8, 0.05)) for i in range(3)]
        assert {one.final_status for one in client.wait(apps).values()} == {"SUCCEEDED"}
    for part in (host, nodes):
        assert "no Resource Manager" not in part.log.read_text()


def test_the_environment_names_the_files_once_for_all_roles(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands run, and their logs are read, with nothing said but three variables."""
    for what, path in files.items():
        monkeypatch.setenv(f"WEFT_TLS_{what.upper()}", str(path))
    settings = LocalSettings(
        cluster="1x4vcores,4096memory_mb", mode="process", launch="process", web=True
    )
    job = chain("hello", 1, 2, 0.1, command=("sh", "-c", "echo over TLS"))
    with LocalCluster(settings, tmp_path / "cluster") as local:
        with Client(local.address) as client:
            app = client.submit(job)
            assert client.wait([app])[app].final_status == "SUCCEEDED"
        pages = f"{local.url.removesuffix('/cluster')}/ws/v1/cluster/metrics"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(pages, timeout=60) as answer:  # HTTP here, TLS from there to the manager
            assert json.load(answer)["clusterMetrics"]["appsCompleted"] == 1
        name = f"application_{client.cluster_ts}_{app:04d}"
        logs = forked.weft("logs", name, "--rm", local.address)
        assert logs.stdout.count("over TLS") == 2, logs
        assert "it hung up" in weft("nodes", "--rm", local.address).stderr


@pytest.mark.parametrize("role", ["rm", "nm", "am", "weft.web"])
def test_a_part_with_wrong_files_says_so_and_does_not_start(
    files: dict[str, Path], role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--hosting"] if role == "am" else []
    monkeypatch.chdir(tmp_path)
    done = forked.ended(
        role,
        "--port=0",
        "--metrics-port=-1",
        *more,
        f"--tls-ca={files['ca']}",
        f"--tls-cert={files['cert']}",
        f"--tls-key={files['ca']}",
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --tls-key: ")
    assert done.stderr.count("\n") == 1
