"""For tests only: an etcd of their own, on free ports, that can be killed, paused and restarted."""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from testkit.live import PATIENCE_S
from weft.ha.etcd import Etcd, EtcdSettings
from weft.model.errors import WeftError

MISSING = "etcd is not installed (Debian's etcd-server)"


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def data_folder() -> Path:
    """Make a folder for the data of an etcd, in memory where that can be.

    A test kills processes, never the machine, and a busy disk would make an etcd miss elections.
    """
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="weft-", dir=memory if memory.is_dir() else None))


class EtcdServer:
    """One etcd on loopback; skips the test where there is none."""

    def __init__(self, folder: Path, *flags: str) -> None:
        found = shutil.which("etcd")
        if found is None:
            pytest.skip(MISSING)
        self._folder = folder
        self._data = data_folder()
        port, peers = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        scheme = "https" if any("cert-file" in flag for flag in flags) else "http"
        self._command = [
            found,
            f"--data-dir={self._data}",
            "--name=one",
            f"--listen-client-urls={scheme}://{self.address}",
            f"--advertise-client-urls={scheme}://{self.address}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=one=http://127.0.0.1:{peers}",
            *flags,
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, or start it again with what it had on its disk."""
        with (self._folder / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def await_(self, settings: EtcdSettings | None = None) -> None:
        """Wait until it answers."""
        etcd = Etcd(settings or EtcdSettings((self.address,)))
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                etcd.get(b"anything")
                break
            except WeftError:
                assert time.monotonic() < give_up, (self._folder / "etcd.log").read_text()[-2000:]
                time.sleep(0.05)
        etcd.close()

    def kill(self) -> None:
        """Kill it, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None

    def close(self) -> None:
        """End it for good."""
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)
