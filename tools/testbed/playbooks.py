"""Ansible, as an administrator of these hosts would use it."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.testbed.host import Host
from tools.testbed.words import ROOT, Failure, run

PLAYBOOKS = ROOT / "deploy" / "ansible"
LOG = ROOT / "build" / "testbed" / "ansible.log"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


@dataclass(frozen=True)
class Recap:
    """What a run did to a host."""

    ok: int
    changed: int


class Ansible:
    """Playbooks against the hosts; everything that it keeps is in one folder."""

    def __init__(self, folder: Path, program: Path, hosts: Sequence[Host], known: str) -> None:
        self._folder = folder
        self._program = program
        self._hosts = hosts
        folder.mkdir()
        (folder / "known_hosts").write_text(known)
        LOG.parent.mkdir(parents=True, exist_ok=True)
        LOG.unlink(missing_ok=True)
        self._config = folder / "ansible.cfg"
        self._config.write_text(
            "[defaults]\nforks = 4\ninterpreter_python = auto_silent\n"
            f"local_tmp = {folder}/tmp\nhome = {folder}/home\nnocows = true\nlog_path = {LOG}\n"
            "[connection]\npipelining = true\n"
            "[ssh_connection]\nssh_args = -o ControlMaster=auto -o ControlPersist=60s\n"
            f"control_path_dir = {folder}/cp\n"
        )

    def write_inventory(self, variables: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Write the hosts as an inventory; `own` holds variables by host."""
        ssh = f"-o UserKnownHostsFile={self._folder}/known_hosts -o IdentitiesOnly=yes"
        hosts = {
            host.name: {
                "ansible_host": host.address,
                "weft_cgroups": host.groups.folders(host.name, "weft"),
                **own.get(host.name, {}),
            }
            for host in self._hosts
        }
        common = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self._folder.parent / "client_key"),
            "ansible_ssh_common_args": ssh,
            **variables,
        }
        text = json.dumps({"weft": {"vars": common, "hosts": hosts}}, indent=1)
        (self._folder / "inventory.json").write_text(text)

    def play(self, book: str, *flags: str, **more: Any) -> dict[str, Recap]:
        """Run a playbook; what it did, by host. Raises Failure with its output."""
        extra = ["--extra-vars", json.dumps(more)] if more else []
        environment = os.environ | {
            "ANSIBLE_CONFIG": str(self._config),
            "ANSIBLE_HOME": str(self._folder / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOST_KEY_CHECKING": "1",
        }
        output = run(
            str(self._program),
            "-i",
            str(self._folder / "inventory.json"),
            *flags,
            *extra,
            str(PLAYBOOKS / book),
            environment=environment,
        )
        found = {
            name: Recap(int(ok), int(changed)) for name, ok, changed, *_ in RECAP.findall(output)
        }
        if not found:
            raise Failure(f"{book} did nothing:\n{output}")
        return found
