"""One host of the testbed: namespaces of its own for network, files, processes and its name."""

import os
import shutil
import subprocess
from pathlib import Path

import psutil

from tools.testbed.groups import Groups
from tools.testbed.words import ROOT, Failure, Skip, hold, run, until

# A host may write to these.
TOPS = ("etc", "home", "opt", "root", "srv", "usr", "var")
# Puts the shell into every group whose file $0 names (split at colons), then becomes the command.
ENTER = 'IFS=:; for f in $0; do echo $$ >"$f" || exit 126; done; unset IFS; exec "$@"'
SSHD = """\
HostKey /run/testbed/host_key
AuthorizedKeysFile /run/testbed/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
Subsystem sftp internal-sftp
"""


class Host:
    """A host that sshd answers on. `folder` holds what it writes, by top folder."""

    def __init__(self, name: str, address: str, folder: Path, groups: Groups) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self.groups = groups
        self._init: subprocess.Popen[bytes] | None = None
        self.pid = 0

    def start(self, client_key: Path, python: Path) -> str:
        """Start it, still without a network; return the line of its key for known_hosts."""
        self.groups.make(self.name)
        tops = [top for top in TOPS if Path("/", top).is_dir() and not Path("/", top).is_symlink()]
        for top in tops:
            _like(Path("/", top), self.folder / top)
            (self.folder / f".{top}").mkdir()
        (self.folder / "tmp").mkdir()
        (self.folder / "tmp").chmod(0o1777)
        key = self._sshd(client_key)
        entry = ":".join(f"{g}/cgroup.procs" for g in self.groups.folders(self.name, "system"))
        with (self.folder / "host.log").open("wb") as log:
            self._init = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    ENTER,
                    entry,
                    "unshare",
                    "--net",
                    "--mount",
                    "--uts",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    "--propagation",
                    "private",
                    "/bin/sh",
                    str(Path(__file__).with_name("host.sh")),
                    self.name,
                    str(self.folder),
                    str(ROOT),
                    " ".join(tops),
                    *widened(python, tops),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = until(self._first, f"{self.name} starts")
        until(self._serves, f"sshd of {self.name} serves")
        return f"{self.address} {key}"

    def _first(self) -> int:
        assert self._init is not None
        if self._init.poll() is not None:
            raise Failure(f"{self.name} ended: {self.log()}")
        try:
            found = psutil.Process(self._init.pid).children()
            return found[0].pid if found and found[0].name() == "sh" else 0
        except psutil.Error:
            return 0

    def _serves(self) -> bool:
        self._first()
        return "Server listening" in self.log()

    def log(self) -> str:
        """Return what its first process wrote."""
        return (self.folder / "host.log").read_text(errors="replace")

    def _sshd(self, client_key: Path) -> str:
        ssh = self.folder / "ssh"
        ssh.mkdir()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / "host_key"))
        shutil.copy2(client_key.with_suffix(".pub"), ssh / "authorized_keys")
        (ssh / "sshd_config").write_text(SSHD)
        return " ".join((ssh / "host_key.pub").read_text().split()[:2])

    # -- what happens to it ------------------------------------------------------------------------

    def run(self, *command: str) -> str:
        """Run a command on the host, as its administrator at the console."""
        return run("nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "-r", "-w", *command)

    def connect(self, bridge: str) -> None:
        """Lay a cable to the bridge, and set the host's address."""
        port = f"{bridge}-{self.name}"
        run(
            "ip",
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(self.pid),
        )
        run("ip", "link", "set", port, "master", bridge, "up")
        for command in (
            f"ip addr add {self.address}/24 dev eth0",
            "ip link set eth0 up",
            "ip link set lo up",
        ):
            self.run(*command.split())

    def cut(self, off: bool) -> None:
        """Cut it off from the network, or end that: nothing gets through and nobody is told."""
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            action = "-I" if off else "-D"
            self.run("iptables", "-w", action, chain, way, "eth0", "-j", "DROP")

    def lose(self, share: float, begin: bool = True) -> None:
        """Lose a share of all packets, in both directions."""
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            self.run(
                "iptables",
                "-w",
                "-A" if begin else "-D",
                chain,
                way,
                "eth0",
                "-m",
                "statistic",
                "--mode",
                "random",
                "--probability",
                str(share),
                "-j",
                "DROP",
            )

    def dropped(self) -> int:
        """Return how many packets the rules dropped so far."""
        listed = self.run("iptables", "-w", "-L", "-v", "-x", "-n").splitlines()
        return sum(int(words[0]) for line in listed if (words := line.split())[2:3] == ["DROP"])

    # -- what it holds -----------------------------------------------------------------------------

    def path(self, path: str) -> Path:
        """Return where a file that the host wrote lies in truth."""
        return self.folder / path.lstrip("/")

    def written(self, word: str) -> list[str]:
        """Return files and folders named with a word that the host holds beyond the machine's."""
        found = []
        for top in TOPS:
            for path in (self.folder / top).rglob(f"*{word}*"):
                if not path.is_char_device():
                    # A character device would stand for a file that was deleted.
                    found.append(str(path.relative_to(self.folder)))
        return sorted(found)

    def processes(self) -> list[str]:
        """Return command lines of all that runs on it, its first process and sshd left out."""
        listed = self.run("ps", "-eo", "pid=,args=").splitlines()
        own = ("host.sh", "sshd", "ps -eo", "sleep 3600")
        return [line.strip() for line in listed if not any(word in line for word in own)]


def widened(python: Path, tops: list[str]) -> list[str]:
    """Return folders on the way to Python that others may not walk. Raises Skip outside `tops`."""
    closed = [folder for folder in python.parents if not folder.stat().st_mode & 0o001]
    for folder in closed:
        if folder.parts[1:2] and folder.parts[1] not in tops:
            raise Skip(f"other users may not walk {folder}, on the way to {python}")
    return [str(folder) for folder in closed]


def _like(model: Path, made: Path) -> None:
    """Make a folder with another's owner and mode: an overlay shows those of its upper one."""
    made.mkdir()
    found = model.stat()
    os.chown(made, found.st_uid, found.st_gid)
    made.chmod(found.st_mode & 0o7777)
    hold(made.is_dir(), f"{made} is made")
