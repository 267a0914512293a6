"""For tests only: processes of Weft, forked from one that has loaded what all of them import.

A role's process costs about a second of its core for its imports before it does anything, and the
tests start hundreds. Here one process per test worker imports once and runs `main` of a role's
`__main__` in a fork of its own, with the arguments, environment, folder and files that
`python -m ROLE` would have had. What the two differ in: the command that `/proc` shows, and whose
child the process is. A process whose environment is not that of the tests is started as usual.
"""

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NotRequired, TypedDict, Unpack

ROLES = ("rm", "am", "nm", "weft.web", "weft.yarn", "weft.router")
# Beside them the command `weft`, with its commands that talk to a cluster.
COMMAND = "weft"
TALKING = ("weft.client.commands_apps", "weft.client.commands_cluster")
# Variables that tests alone read, that every role sets itself, or that are told to each.
_NOT_SEEN = {"PYTEST_CURRENT_TEST", "GRPC_VERBOSITY", "PYTHONUNBUFFERED"}
# These say how a process loads what it is made of.
_OF_LOADING = ("PYTHON", "NUMBA_", "LD_", "OPENBLAS_", "OMP_")
# Dask sets these in the process that starts its first worker, for good.
_SET_BY_DASK = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"}
_MESSAGE_MAX = 1 << 20
# That of the tests: the first to start a role may have changed it.
_ENVIRONMENT = dict(os.environ)
POSSIBLE = sys.platform == "linux" and os.environ.get("WEFT_FORKED", "1") != "0"


Said = subprocess.CompletedProcess[str]


class Forked:
    """A forked process with what tests use of `subprocess.Popen`."""

    def __init__(self, template: "Template", pid: int, args: Sequence[str]) -> None:
        self._template, self.pid, self.args = template, pid, list(args)
        self._handle = os.pidfd_open(pid)
        self.returncode: int | None = None
        self.stdout: IO[Any] | None = None

    def poll(self) -> int | None:
        """Return the exit code, minus the signal's number for a killed one; None: it runs."""
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.returncode = self._template.reap(self.pid)
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code; raises TimeoutExpired."""
        if self.returncode is None:
            waiter = select.poll()
            waiter.register(self._handle, select.POLLIN)
            if not waiter.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process is known to have ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Template:
    """The process that forks; started at its first use, it ends with the one that started it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._environment = _seen(_ENVIRONMENT)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testkit.forked", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=Path(__file__).parent.parent,
            env=_ENVIRONMENT,
        )
        theirs.close()

    @property
    def ended(self) -> bool:
        """Whether somebody ended it before its tests were over."""
        return self._process.poll() is not None

    def can(self, environment: Mapping[str, str]) -> bool:
        """Return whether what was loaded is what a process with this environment would load.

        Packages set variables as they are imported (gymnasium, polars), so what is the tests' own
        by now, too, is no test's choice, and is told to the process.
        """
        seen, own = _seen(environment), _seen(os.environ)
        other = {name for name, _ in seen.items() ^ self._environment.items()}
        return all(
            seen.get(name) == own.get(name)
            and (name in _SET_BY_DASK or not name.startswith(_OF_LOADING))
            for name in other
        )

    def start(self, module: str, flags: Sequence[str], files: Sequence[int], **says: Any) -> Forked:
        """Fork a role; `files`: its input, output and error output."""
        request = {"module": module, "flags": list(flags), **says}
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(files))
            said = self._socket.recv(_MESSAGE_MAX)
        assert said, "the process that forks roles has ended: see its output"
        pid = int(said)
        return Forked(self, pid, [module, *flags])

    def reap(self, pid: int) -> int:
        """Return how a process that has ended, ended."""
        with self._lock:
            self._socket.send(json.dumps({"reap": pid}).encode())
            return int(self._socket.recv(_MESSAGE_MAX))


def _seen(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a process may read as it is imported; its settings it reads as it runs."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _NOT_SEEN and not name.startswith("WEFT_")
    }


_template: Template | None = None
_making = threading.Lock()


def template() -> Template:
    """Return this test worker's template, another one where a test has ended it."""
    global _template  # noqa: PLW0603 - one a process, made when it is first needed
    with _making:
        if _template is not None and _template.ended:
            warnings.warn("a test ended the process that forks roles", stacklevel=2)
            _template = None
        if _template is None:
            _template = Template()
        return _template


class How(TypedDict):
    """How a role is started: with which outputs, where, in a session of its own or not.

    With `stdout` PIPE, read it as text. `environment` None is this process's own.
    """

    stdout: int | IO[Any]
    stderr: int | IO[Any]
    folder: NotRequired[Path | None]
    session: NotRequired[bool]
    environment: NotRequired[Mapping[str, str] | None]


def start(module: str, flags: Sequence[str], **how: Unpack[How]) -> Forked | subprocess.Popen[Any]:
    """Start a role as `python -m` would, with an empty input."""
    told = how.get("environment")
    told = os.environ if told is None else told
    if not (POSSIBLE and module in (*ROLES, COMMAND) and template().can(told)):
        return run(module, flags, **how)
    with contextlib.ExitStack() as opened:
        reads = None
        nothing = opened.enter_context(Path(os.devnull).open("rb"))
        if how["stdout"] == subprocess.PIPE:
            reads, writes = os.pipe()
            opened.callback(os.close, writes)
        else:
            writes = _number(how["stdout"])
        made = template().start(
            module,
            flags,
            [nothing.fileno(), writes, _number(how["stderr"])],
            session=how.get("session", False),
            folder=str(how.get("folder") or Path.cwd()),
            environment=dict(told),
        )
    if reads is not None:
        made.stdout = os.fdopen(reads, "r")
    return made


def run(module: str, flags: Sequence[str], **how: Unpack[How]) -> subprocess.Popen[Any]:
    """Run `python -m`."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *flags],
        stdin=subprocess.DEVNULL,
        stdout=how["stdout"],
        stderr=how["stderr"],
        text=how["stdout"] == subprocess.PIPE,
        cwd=how.get("folder"),
        env=how.get("environment"),
        start_new_session=how.get("session", False),
    )


def weft(*arguments: str, environment: Mapping[str, str] | None = None) -> Said:
    """Run the command `weft` as a user would."""
    return ended(COMMAND, *arguments, environment=environment)


def ended(module: str, *flags: str, environment: Mapping[str, str] | None = None) -> Said:
    """Run the command, or a role that ends by itself, with an empty input to its end."""
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        process = start(module, flags, stdout=output, stderr=errors, environment=environment)
        try:
            code = process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess([module, *flags], code, output.read(), errors.read())


def _number(file: int | IO[Any]) -> int:
    return file if isinstance(file, int) else file.fileno()


# -- in the process that forks ---------------------------------------------------------------------


def load() -> None:
    """Import the roles and the command, and the kernels of the usual matcher."""
    for module in (*ROLES, COMMAND):
        import_module(f"{module}.__main__")
    for module in TALKING:
        import_module(module)
    from rm.match.registry import make_matcher
    from rm.process.warm import warm
    from weft.model.resources import DEFAULT_RESOURCE_TYPES
    from weft.policies.presets import preset

    for name in ("capacity", "graphene"):
        chosen = preset(name)
        warm(make_matcher(chosen.matcher, chosen.matcher_options), DEFAULT_RESOURCE_TYPES)
    gc.collect()
    # Otherwise each fork copies what the collector looks at.
    gc.freeze()


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork until the tests end; returns what to run in each fork, None at the end."""
    while True:
        text, files, _, _ = socket.recv_fds(control, _MESSAGE_MAX, 3)
        if not text:
            return None
        request: dict[str, Any] = json.loads(text)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            request["files"] = files
            return request
        control.send(str(pid).encode())
        for file in files:
            os.close(file)


def become(request: dict[str, Any]) -> None:
    """Run as a role's process from here on."""
    for number, file in enumerate(request["files"]):
        os.dup2(file, number)
    os.closerange(3, 1 + max(int(name) for name in os.listdir("/proc/self/fd")))
    if request.get("session"):
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    module, flags = request["module"], request["flags"]
    sys.argv = [sys.modules[f"{module}.__main__"].__file__ or module, *flags]
    sys.orig_argv = [sys.executable, "-m", module, *flags]
    sys.modules[f"{module}.__main__"].main(flags)


def main() -> None:
    """Load, then fork as told."""
    control = socket.socket(fileno=int(sys.argv[1]))
    load()
    if (request := serve(control)) is not None:
        control.detach()
        code = 0
        try:
            become(request)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
            code = 1
        _leave(code)


def _leave(code: int) -> None:
    """End as the interpreter does, but take nothing apart: that costs more than a start here."""
    threads: Any = threading
    threads._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
