"""What installs Weft on hosts keeps its word: units, the supervisor, the role's settings.

`make testbed` installs on four hosts made of namespaces and runs real jobs there.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testkit.live import until
from weft.runtime.role_settings import (
    AmSettings,
    HadoopSettings,
    NmSettings,
    RmSettings,
    WebSettings,
)
from weft.yarn import relay

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
ANSIBLE = ROOT / "deploy" / "ansible"
ROLE = ANSIBLE / "roles" / "weft"
SUPERVISOR = ROLE / "files" / "weft-service"
SETTINGS = {
    "rm": set(RmSettings.model_fields),
    "am": set(AmSettings.model_fields),
    "nm": set(NmSettings.model_fields),
    "web": set(WebSettings.model_fields),
    "hadoop": set(HadoopSettings.model_fields),
    "relay": set(relay.FLAGS),
}
# Stands for Python: says how it was called and what it was told, then does as it is bid.
STUB = """#!/bin/sh
trap 'echo ended >>"$STUB_LOG"; exit 0' TERM
echo "started $* manager=$WEFT_NM_MANAGER cwd=$PWD" >>"$STUB_LOG"
while [ ! -s "$STUB_LOG.exit" ]; do sleep 0.05; done
read -r code <"$STUB_LOG.exit"
: >"$STUB_LOG.exit"
exit "$code"
"""


# -- the units -------------------------------------------------------------------------------------


def told(unit: Path) -> dict[str, str]:
    """The directives of a unit; of one that is repeated, all its lines."""
    found: dict[str, str] = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found[name] = f"{found[name]} {value}" if name in found else value
    return found


def test_there_is_a_unit_for_every_role() -> None:
    assert {unit.stem for unit in UNITS} == {f"weft-{name}" for name in SETTINGS}


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.stem)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/weft/current/bin/python", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(here)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr  # an unknown directive is a warning only


@pytest.mark.parametrize(
    ("name", "tenths"),
    [("rm", 20), ("am", 20), ("web", 20), ("hadoop", 20), ("relay", 20), ("nm", 55)],
)
def test_a_service_is_hardened(name: str, tenths: int) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    unit = ROOT / "deploy" / "systemd" / f"weft-{name}.service"
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", f"--threshold={tenths}", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.stem)
def test_a_service_comes_back_and_is_nobody_special(unit: Path) -> None:
    name = unit.stem.removeprefix("weft-")
    directives = told(unit)
    assert directives["Restart"] == "on-failure"
    assert directives["RestartPreventExitStatus"] == "2"
    assert directives["User"] == "weft"
    assert directives["EnvironmentFile"] == f"/etc/weft/{name}.env"
    assert directives["NoNewPrivileges"] == "yes"
    assert directives["ProtectSystem"] == "strict"
    module = directives["ExecStart"].split(" -m ")[1].split()[0]
    place = ROOT / module.replace(".", "/")
    assert (place / "__main__.py").exists() or place.with_suffix(".py").exists()


def test_the_node_manager_may_make_groups_and_outlives_a_hog() -> None:
    directives = told(ROOT / "deploy" / "systemd" / "weft-nm.service")
    assert directives["Delegate"].split() == ["cpu", "memory", "pids", "io"]
    assert directives["OOMPolicy"] == "continue"
    assert directives["KillMode"] == "process", "a new node manager takes its tasks over"
    assert "ProtectControlGroups" not in directives
    assert "SystemCallFilter" not in directives  # tasks inherit it


# -- the role --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(ANSIBLE.rglob("*.yml")), ids=lambda p: str(p.name))
def test_ansibles_files_are_yaml(path: Path) -> None:
    assert yaml.safe_load(path.read_text())


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_the_role_sets_what_there_is_to_set(name: str) -> None:
    own = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["weft_own_settings"][name]
    assert set(own) <= SETTINGS[name]


@pytest.mark.parametrize("book", ["install", "upgrade", "uninstall", "certificates"])
def test_ansible_accepts_a_playbook(book: str, tmp_path: Path) -> None:
    here = ROOT / "build" / "ansible" / "bin" / "ansible-playbook"
    program = str(here) if here.exists() else shutil.which("ansible-playbook")
    if program is None:
        pytest.skip("no Ansible")
    done = subprocess.run(
        [
            program,
            "--syntax-check",
            "-i",
            str(ANSIBLE / "inventory.example.yml"),
            str(ANSIBLE / f"{book}.yml"),
        ],
        env=os.environ | {"ANSIBLE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- the supervisor --------------------------------------------------------------------------------


class Supervised:
    """`weft-service` with folders of its own and a stub in Python's place."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "said"
        self.run_folder = folder / "run"
        stub = folder / "root" / "bin" / "python"
        stub.parent.mkdir(parents=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
        (folder / "etc").mkdir()
        (folder / "etc" / "nm.env").write_text("WEFT_NM_MANAGER='10.0.0.1:8030'\n")
        owner = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True)
        self.environment = os.environ | {
            "WEFT_ETC": str(folder / "etc"),
            "WEFT_ROOT": str(folder / "root"),
            "WEFT_STATE": str(folder / "state"),
            "WEFT_LOGS": str(folder / "logs"),
            "WEFT_RUN": str(self.run_folder),
            "WEFT_USER": owner.stdout.strip(),
            "STUB_LOG": str(self.log),
        }

    def __call__(self, command: str, name: str = "nm") -> int:
        done = subprocess.run(
            ["sh", str(SUPERVISOR), command, name],
            env=self.environment,
            check=False,
            timeout=60,
            capture_output=True,
        )
        return done.returncode

    def said(self, word: str) -> int:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum(line.startswith(word) for line in lines)

    def end(self, code: int) -> None:
        """Let the stub end by itself."""
        Path(f"{self.log}.exit").write_text(f"{code}\n")

    def child(self) -> int:
        return int((self.run_folder / "nm.child").read_text())


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    made = Supervised(tmp_path)
    yield made
    made("stop")


def test_a_service_starts_with_its_settings_and_ends_in_order(supervised: Supervised) -> None:
    assert supervised("status") != 0
    assert supervised("start") == 0
    until(lambda: supervised.said("started"), "it starts")
    assert "-P -m nm manager=10.0.0.1:8030" in supervised.log.read_text()
    assert "/state/nm" in supervised.log.read_text()
    assert supervised("status") == 0
    first = supervised.child()
    assert supervised("start") == 0  # once more: nothing
    assert supervised.child() == first
    assert supervised("stop") == 0
    assert supervised.said("ended") == 1
    assert supervised.said("started") == 1
    assert supervised("status") != 0


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_the_supervisor_runs_what_the_unit_runs(supervised: Supervised, name: str) -> None:
    begins = told(ROOT / "deploy" / "systemd" / f"weft-{name}.service")["ExecStart"]
    (supervised.log.parent / "etc" / f"{name}.env").write_text("")
    assert supervised("start", name) == 0
    until(lambda: supervised.said("started"), "it starts")
    arguments = begins.partition("bin/python ")[2]
    assert f"started {arguments} manager=" in supervised.log.read_text()
    assert supervised("stop", name) == 0


def test_a_service_that_crashed_comes_back(supervised: Supervised) -> None:
    supervised("start")
    until(lambda: supervised.said("started") == 1, "it starts")
    os.kill(supervised.child(), signal.SIGKILL)
    until(lambda: supervised.said("started") == 2, "it comes back")
    assert supervised("status") == 0


@pytest.mark.parametrize("code", [0, 2])
def test_a_service_that_left_or_is_set_wrong_stays_away(supervised: Supervised, code: int) -> None:
    supervised("start")
    until(lambda: supervised.said("started") == 1, "it starts")
    supervised.end(code)
    until(lambda: supervised("status") != 0, "it stays away")
    assert supervised.said("started") == 1


def test_a_role_that_is_not_there_is_refused(supervised: Supervised) -> None:
    assert supervised("start", "none") == 1
    assert supervised("start", "rm") == 1  # no settings for it


# -- the testbed's own parts -----------------------------------------------------------------------


def test_a_long_way_takes_its_time_and_loses_nothing() -> None:
    delay_s = 0.05
    far = socket.create_server(("127.0.0.1", 0))

    def echo() -> None:
        connection, _ = far.accept()
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    target = f"127.0.0.1:{far.getsockname()[1]}"
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tools/testbed/delay.py"), listen, target, str(delay_s)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        sent = os.urandom(1 << 20)
        got = b""
        with socket.create_connection(("127.0.0.1", int(listen.split(":")[1]))) as near:
            began_s = time.monotonic()
            near.sendall(sent[:1])
            got += near.recv(1)
            assert time.monotonic() - began_s >= 2 * delay_s
            threading.Thread(target=near.sendall, args=(sent[1:],), daemon=True).start()
            while len(got) < len(sent):
                got += near.recv(1 << 16)
        assert got == sent
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None
        far.close()


def test_the_testbed_says_why_it_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from tools.testbed.__main__ import look
    from tools.testbed.words import Skip

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Skip, match="needs root"):
        look(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Skip, match=r"needs ip, .*Debian: openssh-server"):
        look(tmp_path)


@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    os.environ.get("WEFT_TESTBED") != "1", reason="`make testbed`, or set WEFT_TESTBED=1"
)
def test_weft_keeps_its_promises_on_hosts() -> None:
    done = subprocess.run([sys.executable, "-m", "tools.testbed"], cwd=ROOT, check=False)
    assert done.returncode == 0
