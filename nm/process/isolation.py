"""What a real task sees and may touch of its host.

Two measures, each by a tool that every distribution keeps: the task runs as a user of its own
(`setpriv`, of util-linux; needs root) without a way to more rights, and in a sandbox (`bwrap`, of
bubblewrap; needs root or user namespaces) in which it sees its own processes only, a `/tmp` of its
own, its own container's folder and none of the node's keys. The sandbox ends whatever the task
leaves behind, however it hides. What a host cannot do is reported once, in `lacking`.
"""

import contextlib
import errno
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from weft.model.errors import InputError

Sandbox = Literal["off", "auto", "on"]
SHELL = "/bin/sh"
# Each container gets its own of these.
OPEN_TMP = ("/tmp", "/var/tmp", "/dev/shm")
# The sandbox outlives a signal to the group, which the task itself is to answer.
IGNORE = 'trap "" TERM INT HUP; exec "$@"'
DEFAULT = "--default-signal=TERM,INT,HUP"
# Variables by which a task could have the tools do something before they gave up their rights: what
# glibc keeps from programs that run as another than their caller, and what shells read.
STEERING = {
    "BASHOPTS",
    "BASH_ENV",
    "BASH_XTRACEFD",
    "ENV",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "IFS",
    "LOCALDOMAIN",
    "LOCPATH",
    "NIS_PATH",
    "NLSPATH",
    "PS4",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "SHELLOPTS",
    "TMPDIR",
    "TZDIR",
}
# All variables that begin so are left out, too.
STEERING_PREFIXES = ("LD_", "MALLOC_", "BASH_FUNC_")
TRIAL_S = 20.0


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the host."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, slots=True)
class Isolation:
    """How one node's tasks are kept apart; nothing of it where there is neither.

    `root` is above all containers' folders, no task may see `hidden` files and folders, and
    `lacking` says what was wanted and the host cannot do.
    """

    root: Path
    account: Account | None = None
    sandboxed: bool = False
    network: bool = True
    hidden: tuple[Path, ...] = ()
    lacking: tuple[str, ...] = ()
    tools: dict[str, str] = field(default_factory=dict)

    @property
    def on(self) -> bool:
        """Whether commands are changed at all."""
        return self.sandboxed or self.account is not None

    def wrap(
        self,
        command: Sequence[str],
        folder: Path,
        seen: Iterable[Path],
        later: Mapping[str, str] = MappingProxyType({}),
    ) -> Sequence[str]:
        """Return the command so that it runs in `folder` as the task's user and in its sandbox.

        `seen` are the folders below the root that it may use, one of them `folder` or above it,
        `later` the variables that only the command itself gets, as `steers` is true of them.
        """
        env = self.tools["env"]
        told = [env, *(f"{name}={value}" for name, value in later.items())] if later else []
        inner = [*self._as_user(), *told, *command]
        if not self.sandboxed:
            return inner
        return (SHELL, "-c", IGNORE, "sh", *self._sandbox(folder, seen), "--", env, DEFAULT, *inner)

    def environment(self) -> dict[str, str]:
        """Return variables that say who the task's user is."""
        if self.account is None:
            return {}
        name = self.account.name
        return {"USER": name, "LOGNAME": name, "HOME": self.account.home}

    def own(self, place: int) -> None:
        """Give a folder or file that is open as `place` to the task's user, and to nobody else."""
        if self.account is not None:
            os.fchown(place, self.account.uid, self.account.gid)

    def _as_user(self) -> list[str]:
        if self.account is None:
            return []
        return [
            self.tools["setpriv"],
            f"--reuid={self.account.uid}",
            f"--regid={self.account.gid}",
            "--init-groups",
            "--no-new-privs",
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--",
        ]

    def _sandbox(self, folder: Path, seen: Iterable[Path]) -> list[str]:
        words = [self.tools["bwrap"], "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
        if not self.network:
            words.append("--unshare-net")
        words += ["--dev-bind", "/", "/", "--proc", "/proc"]
        empty = {Path(place): "1777" for place in OPEN_TMP if Path(place).is_dir()}
        for place in self.hidden:
            if place.is_dir():
                empty[place] = "0755"
            elif place.exists():
                words += ["--ro-bind", "/dev/null", str(place)]
        empty[self.root] = "0755"
        # A folder comes before those inside it.
        for place in sorted(empty):
            words += [*_steps(place, empty), "--perms", empty[place], "--tmpfs", str(place)]
        for place in seen:
            words += [*_steps(place, empty), "--bind", str(place), str(place)]
        return [*words, "--chdir", str(folder)]


def steers(name: str) -> bool:
    """Return whether a variable may change what a tool does that has more rights than a task."""
    return name in STEERING or name.startswith(STEERING_PREFIXES)


def hindrance(program: str, environment: Mapping[str, str], folder: Path) -> int:
    """Return the error by which a program cannot be started in a folder, as execvp; 0: none."""
    problem = errno.ENOENT
    for place in [""] if "/" in program else os.get_exec_path(environment):
        path = os.path.join(folder, place, program)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return 0
            problem = errno.EACCES
    return problem


def _steps(place: Path, empty: Mapping[Path, str]) -> list[str]:
    """Make the folders above a place that lies in one that is `empty` in the sandbox."""
    words: list[str] = []
    for step in reversed(place.parents):
        if step not in empty and any(above in empty for above in step.parents):
            words += ["--perms", "0755", "--dir", str(step)]
    return words


def isolation(
    root: Path,
    *,
    user: str = "",
    sandbox: Sandbox = "off",
    network: bool = True,
    hidden: Sequence[Path] = (),
) -> Isolation:
    """Find out what this host can do; raises InputError for what it cannot and must."""
    lacking: list[str] = []
    tools = {name: shutil.which(name) or "" for name in ("setpriv", "bwrap", "env")}
    account = _account(user, tools) if user else None
    found = Isolation(
        root.resolve(),
        account,
        sandbox != "off",
        network,
        tuple(path.resolve() for path in hidden),
        (),
        tools,
    )
    if sandbox != "off":
        problem = "bubblewrap (bwrap) is not installed" if not tools["bwrap"] else _try(found)
        if problem and sandbox == "on":
            raise InputError("--sandbox", f"this host cannot: {problem}")
        if problem:
            lacking.append(f"no sandbox, tasks see each other and this host: {problem}")
            found = Isolation(found.root, account, False, network, found.hidden, (), tools)
    if not network and not found.sandboxed:
        if sandbox != "auto":
            raise InputError("--task-network", "none needs --sandbox")
        lacking.append("tasks reach the network: that needs the sandbox")
    if account is not None and not found.sandboxed:
        problem = _try(found)
        if problem:
            raise InputError("--task-user", f"{user} cannot run tasks in {root}: {problem}")
    return Isolation(
        found.root, account, found.sandboxed, network, found.hidden, tuple(lacking), tools
    )


def _account(user: str, tools: dict[str, str]) -> Account | None:
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise InputError("--task-user", f"this host has no user {user!r}") from None
    if found.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise InputError("--task-user", "only root may run tasks as somebody else")
    if found.pw_uid == 0:
        raise InputError("--task-user", "root is no user for tasks")
    if not tools["setpriv"]:
        raise InputError("--task-user", "setpriv (util-linux) is not installed")
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)


def _try(wanted: Isolation) -> str:
    """Run a command as tasks would run; why it fails, or nothing."""
    folder = wanted.root / ".trial"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            wanted.own(place)
        finally:
            os.close(place)
        command = wanted.wrap((SHELL, "-c", ": >file && rm file"), folder, [folder])
        ran = subprocess.run(
            command,
            cwd="/" if wanted.sandboxed else folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_S,
            check=False,
        )
        if ran.returncode == 0:
            return ""
        said = ran.stderr.decode(errors="replace").strip()
        return said.splitlines()[-1] if said else f"exit code {ran.returncode}"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
