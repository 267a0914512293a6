"""A local cluster that outlives the command that started it: `weft up --detach`, `weft down`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from weft.client.api import DEFAULT_ADDRESS
from weft.model.errors import InputError, WeftError

READY_VARIABLE = "WEFT_UP_READY"
STOP_PATIENCE_S = 30.0
POLL_S = 0.1


def say_ready(address: str, endpoints: str, goes: str) -> None:
    """Tell the command that started this process that the cluster serves, where there is one.

    `goes` is the folder that goes with the cluster, empty where it is kept.
    """
    if path := os.environ.pop(READY_VARIABLE, ""):
        _write(Path(path), {"address": address, "endpoints": endpoints, "goes": goes})


def start_detached(arguments: list[str]) -> str:
    """Start `weft up` with these arguments in a session of its own; returns its endpoints.

    Returns when the cluster serves. Raises WeftError with the last words of one that ended before.
    """
    home = _home()
    handle, name = tempfile.mkstemp(dir=home, prefix="up-", suffix=".log")
    log, ready = Path(name), Path(name).with_suffix(".ready")
    with open(handle, "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "weft", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env=os.environ | {READY_VARIABLE: str(ready)},
        )
    try:
        while not ready.exists():
            if process.poll() is not None:
                last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
                log.unlink()
                why = "".join(last).removeprefix("weft: ")
                raise WeftError(f"the cluster did not start: {why}")
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        raise
    known = json.loads(ready.read_text("utf-8"))
    ready.unlink()
    record = known | {"pid": process.pid, "created_s": _created_s(process.pid), "log": str(log)}
    _write(_record(known["address"]), record)
    default = "" if known["address"] == DEFAULT_ADDRESS else f" --rm {known['address']}"
    return f"{known['endpoints']}\nend it with: weft down{default}"


def stop_detached(address: str) -> str:
    """End the cluster that `weft up --detach` started at an address, and wait until it has ended.

    Return the folder that went with it, or nothing. Raises InputError where none was, and WeftError
    where it does not end.
    """
    path = _record(address)
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise InputError("--rm", f"no `weft up --detach` of yours serves at {address}") from None
    pid = int(record["pid"])
    if _created_s(pid) == record["created_s"]:
        os.kill(pid, signal.SIGTERM)
        _await_end(pid, record["created_s"])
    for name in (path, Path(record["log"])):
        name.unlink(missing_ok=True)
    return str(record.get("goes", ""))


def _await_end(pid: int, created_s: float) -> None:
    patient_until = time.monotonic() + STOP_PATIENCE_S
    while _created_s(pid) == created_s:
        # A child of this very process stays in the table until somebody asks for its end.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > patient_until:
            raise WeftError(f"process {pid} did not end within {STOP_PATIENCE_S:g} s")
        time.sleep(POLL_S)


def _created_s(pid: int) -> float:
    """Return when a process began, which tells it from a later one of its number; 0: it ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return 0.0


def _home() -> Path:
    """Return the folder of this user's records; raises WeftError where another one owns it."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    home = Path(base) / f"weft-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.getuid():
        raise WeftError(f"{home} belongs to another user")
    return home


def _record(address: str) -> Path:
    return _home() / f"up-{address.replace('/', '_')}.json"


def _write(path: Path, data: dict[str, Any]) -> None:
    beside = path.with_suffix(path.suffix + ".new")
    beside.write_text(json.dumps(data), "utf-8")
    beside.replace(path)
