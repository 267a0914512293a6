"""The testbed as a whole: a bridge, four hosts, and the control side of a cluster.

Runs inside namespaces of its own (see `__main__`), so nothing here touches the machine's network.
"""

import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from testkit.live import Cluster, Part
from tools.testbed.groups import Groups
from tools.testbed.host import Host
from tools.testbed.playbooks import Ansible
from tools.testbed.words import WHEELHOUSE, hold, run, until
from weft.client.api import ENDED, Client
from weft.model.ids import AppId
from weft.protocol.requests import ApplicationReport

BRIDGE = "weft0"
CONTROL = "10.77.0.1"
MANAGER, FAR_MANAGER, AM_HOST = f"{CONTROL}:8030", f"{CONTROL}:8130", f"{CONTROL}:8050"
# Each way, between the last host and the Resource Manager.
DELAY_S = 0.04
EXPIRY_S = 6
VCORES, MEMORY_MB = 4, 1024
COUNT = 4
JOB_WAIT_S = 240.0
EVENTS = "/var/lib/weft/nm/events.jsonl"
TAPES = "/var/lib/weft/nm/tapes"
NODE_MANAGER_SETTINGS = {"events": EVENTS, "tape": TAPES, "resend_after_s": 1}


class Gate:
    """Tasks that connect wait until it opens: what they do then depends on no clock."""

    PORT = 9900

    def __init__(self) -> None:
        self._server = socket.create_server((CONTROL, self.PORT), backlog=256)
        self._waiting: list[socket.socket] = []
        self._open = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            if self._open:
                connection.close()
            else:
                self._waiting.append(connection)

    def open(self) -> None:
        """Let everybody through, and who comes later."""
        self._open = True
        while self._waiting:
            with suppress(OSError):
                self._waiting.pop().close()

    def shut(self) -> None:
        """Shut the gate: whoever comes from now on waits."""
        self._open = False

    @property
    def waiting(self) -> list[str]:
        """The address of each that waits, ended ones left out."""
        here = [one for one in self._waiting if not _gone(one)]
        return [str(one.getpeername()[0]) for one in here]


def _gone(connection: socket.socket) -> bool:
    """Return whether the other end hung up; one that is only cut off has not."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class Bed:
    """What the proofs work on.

    There are `count` hosts, each of `capacity`; `tapes` has those of the control side.
    """

    count = COUNT
    capacity: ClassVar[dict[str, int]] = {"vcores": VCORES, "memory_mb": MEMORY_MB}
    services: tuple[str, ...] = ("nm",)

    def __init__(self, folder: Path, groups: Groups, ansible: Path, python: Path) -> None:
        self.folder = folder
        self.groups = groups
        self.python = python
        self.hosts: list[Host] = []
        (folder / "control").mkdir()
        self.cluster = Cluster(folder / "control")
        self.tapes = folder / "tapes"
        self.gate: Gate
        self.ansible: Ansible
        self.client: Client
        self.manager: Part
        self._ansible_program = ansible
        self._processes: list[subprocess.Popen[str]] = []

    # -- up ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start hosts, network, certificates, and the control side of the cluster."""
        for command in (
            "ip link set lo up",
            f"ip link add {BRIDGE} type bridge",
            f"ip addr add {CONTROL}/24 dev {BRIDGE}",
            f"ip link set {BRIDGE} up",
        ):
            run(*command.split())
        key = self.folder / "client_key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        known = ""
        for number in range(1, self.count + 1):
            folder = self.folder / f"h{number}"
            folder.mkdir()
            host = Host(f"h{number}", f"10.77.0.{10 + number}", folder, self.groups)
            self.hosts.append(host)
            known += host.start(key, self.python) + "\n"
            host.connect(BRIDGE)
            (self.cluster.folder / f"{host.name}.jsonl").symlink_to(host.path(EVENTS))
        self.ansible = Ansible(self.folder / "ansible", self._ansible_program, self.hosts, known)
        self.gate = Gate()

    def serve(self) -> None:
        """Make certificates; start the Resource Manager, the AM host, the long way to the first."""
        self.ansible.write_inventory(self._variables(), self._own())
        self.ansible.play("certificates.yml")
        secrets = self.folder / "certificates"
        os.environ |= {
            "WEFT_TLS_CA": f"{secrets}/ca.pem",
            "WEFT_TLS_CERT": f"{secrets}/control.pem",
            "WEFT_TLS_KEY": f"{secrets}/control-key.pem",
        }
        self.manager = self.cluster.manager(
            f"--host={CONTROL}",
            "--port=8030",
            f"--node-expiry-s={EXPIRY_S}",
            f"--state-dir={self.folder / 'state'}",
            "--heartbeat-s=0.5",
            f"--tape={self.tapes}",
        )
        self.cluster.host(self.manager, f"--host={CONTROL}", "--port=8050", f"--tape={self.tapes}")
        far = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("delay.py")),
                FAR_MANAGER,
                MANAGER,
                str(DELAY_S),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(far)
        assert far.stdout is not None
        hold(far.stdout.readline() == "ready\n", "the long way opens")
        self.client = Client(MANAGER)

    def stop(self) -> None:
        """Stop the control side in order; the hosts end with the namespaces."""
        with suppress(AttributeError):
            self.client.close()
        self.cluster.close()
        for process in self._processes:
            process.kill()
            process.wait()

    def _variables(self) -> dict[str, Any]:
        return {
            "ansible_python_interpreter": str(self.python),
            "weft_python": str(self.python),
            "weft_service": "script",
            "weft_manager": MANAGER,
            "weft_am_host": AM_HOST,
            "weft_services": list(self.services),
            "weft_wheelhouse": str(WHEELHOUSE),
            "weft_certificates": str(self.folder / "certificates"),
            "weft_more_certificates": [f"control,{CONTROL}"],
            "weft_command": str(Path(sys.executable).with_name("weft")),
            "weft_capacity": self.capacity,
            "weft_settings": {"nm": NODE_MANAGER_SETTINGS},
            "weft_drain_timeout_s": 60,
        }

    def _own(self) -> dict[str, Any]:
        """Return variables by host.

        The first has the pages as well, the second keeps tasks apart, the last has a long way to
        the manager.
        """
        first, apart, last = self.hosts[0], self.hosts[1], self.hosts[-1]
        return {
            first.name: {
                "weft_services": ["nm", "web"],
                "weft_settings": {
                    "nm": NODE_MANAGER_SETTINGS,
                    "web": {"host": first.address, "insecure": True},
                },
            },
            apart.name: {"weft_settings": {"nm": NODE_MANAGER_SETTINGS | {"sandbox": "on"}}},
            last.name: {"weft_settings": {"nm": NODE_MANAGER_SETTINGS | {"manager": FAR_MANAGER}}},
        }

    # -- what is known -----------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        """Return the state of every node."""
        return {node.node_id: node.state for node in self.client.nodes()}

    def all_in(self, state: str) -> bool:
        """Return whether all nodes are in a state."""
        return sorted(self.states().items()) == [(h.name, state) for h in self.hosts]

    def wait_for_nodes(self, state: str = "RUNNING") -> None:
        """Wait until all nodes are in a state."""
        until(lambda: self.all_in(state), f"all nodes are {state}")

    def ended(self, app: AppId) -> ApplicationReport:
        """Return the report of an application, when it has ended."""

        def asked() -> ApplicationReport | None:
            report = self.client.application(app)
            return report if report.state in ENDED else None

        return until(asked, f"{self.client.application(app).name} ends", JOB_WAIT_S)

    def facts(self, *names: str) -> list[dict[str, Any]]:
        """Return what the Resource Manager and the node managers recorded so far."""
        return [fact for fact in self.cluster.events() if fact["fact"] in names]

    def weft(self, *arguments: str) -> str:
        """Run a `weft` command on the control host."""
        program = str(Path(sys.executable).with_name("weft"))
        return run(program, *arguments, environment=os.environ | {"WEFT_RM_ADDRESS": MANAGER})

    def copy_tapes(self, to: Path) -> list[Path]:
        """Copy the tapes of all processes as they stand, those that still run among them."""
        to.mkdir(parents=True)
        folders = [self.tapes, *(host.path(TAPES) for host in self.hosts)]
        found = [tape for folder in folders for tape in sorted(folder.glob("*.tape"))]
        return [Path(shutil.copy(tape, to)) for tape in found]

    def manager_pids(self) -> dict[str, str]:
        """Return the process of every node manager, as its host counts."""
        return {h.name: h.run("/opt/weft/weft-service", "pid", "nm").strip() for h in self.hosts}
