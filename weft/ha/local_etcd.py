"""An etcd on this machine for a local cluster of several Resource Managers."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from weft.model.errors import InputError, WeftError

MISSING = (
    "several managers share an etcd, and there is none here: install it (Debian: apt install "
    "etcd-server), or name one with --store etcd://host:port"
)
START_S, POLL_S = 60.0, 0.05
_PR_SET_PDEATHSIG = 1


def find() -> str:
    """Return where etcd is installed; raises InputError saying how to get it."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/bin"))
    found = shutil.which("etcd", path=path)
    if found is None:
        raise InputError("--managers", MISSING)
    return found


def start(
    program: str, folder: Path, output: Path, address: str = ""
) -> tuple[subprocess.Popen[bytes], str]:
    """Start it on loopback, its data in `folder`; returns the process and host:port.

    `address` is where it listened before, empty: any free port. It ends with this process. Raises
    WeftError where it does not answer.
    """
    address, peers = address or f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [
        program,
        "--name=weft",
        f"--data-dir={folder}",
        "--auto-compaction-retention=1",
        f"--listen-client-urls=http://{address}",
        f"--advertise-client-urls=http://{address}",
        f"--listen-peer-urls=http://{peers}",
        f"--initial-advertise-peer-urls=http://{peers}",
        f"--initial-cluster=weft=http://{peers}",
        "--force-new-cluster",
    ]
    with output.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=partial(_die_with, os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
        )
    until = time.monotonic() + START_S
    while not healthy(address):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise WeftError(f"etcd does not serve: see {output}")
        time.sleep(POLL_S)
    return process, address


def healthy(address: str) -> bool:
    """Return whether the etcd at host:port serves, so that its members have a leader."""
    try:
        with urllib.request.urlopen(f"http://{address}/health", timeout=2.0) as answer:
            return b"true" in answer.read(1_000)
    except (urllib.error.URLError, OSError):
        return False


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have died before it was asked for.
    if os.getppid() != parent:
        os._exit(1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
