"""A local cluster that outlives the command that started it: `weft up --detach`, `weft down`."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from weft.client.api import DEFAULT_ADDRESS
from weft.model.errors import InputError, WeftError
from weft.policies import first_compile

READY_VARIABLE = "WEFT_UP_READY"
# The name of what `weft up --detach` itself says, in the folder that is kept.
LOG = "up.log"
# So begins the line in which a command says why it failed.
_ERROR = "weft: "
STOP_PATIENCE_S = 30.0
POLL_S = 0.1


def say_ready(address: str, endpoints: str, goes: str) -> str:
    """Tell the command that started this process that the cluster serves, where there is one.

    `goes` is the folder that goes with the cluster, empty where it is kept. Returns what ends the
    cluster.
    """
    path = os.environ.pop(READY_VARIABLE, "")
    if not path:
        return "Ctrl-C"
    # What follows is read in the log, where nobody presses a key.
    click.echo(endpoints, err=True)
    _write(Path(path), {"address": address, "endpoints": endpoints, "goes": goes})
    return _down(address)


def _down(address: str) -> str:
    return "weft down" if address == DEFAULT_ADDRESS else f"weft down --rm {address}"


def start_detached(arguments: list[str], folder: Path | None) -> str:
    """Start `weft up` with these arguments in a session of its own; returns its endpoints.

    What it says goes into `up.log` of the folder that is kept, if one is. Returns when the cluster
    serves. Raises WeftError with the last words of one that ended before.
    """
    home = _home()
    handle, name = tempfile.mkstemp(dir=home, prefix="up-", suffix=".log")
    log, ready = Path(name), Path(name).with_suffix(".ready")
    if folder is not None:
        os.close(handle)
        log.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        log = folder.absolute() / LOG
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    told, before = False, log.stat().st_size
    with open(handle, "ab") as errors:
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
                why = "".join(_lines(log)[-1:]).removeprefix(_ERROR)
                if folder is None:
                    log.unlink()
                raise WeftError(f"the cluster did not start: {why}")
            if not told and first_compile.TEXT.encode() in log.read_bytes()[before:]:
                told = True
                click.echo(first_compile.TEXT, err=True)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        raise
    known = json.loads(ready.read_text("utf-8"))
    ready.unlink()
    record = known | {"pid": process.pid, "created_s": _created_s(process.pid), "log": str(log)}
    record["folder"] = "" if folder is None else str(folder.absolute())
    _write(_record(known["address"]), record)
    return f"{known['endpoints']}\nend it with: {_down(known['address'])}"


def stop_detached(address: str) -> str:
    """End the cluster that `weft up --detach` started at an address, and wait until it has ended.

    Return what became of it. Raises InputError where none was, and WeftError where it does not end.
    """
    path = _record(address)
    record = _read(path)
    if record is None:
        raise InputError("--rm", f"no `weft up --detach` of yours serves at {address}")
    pid, log = int(record["pid"]), Path(record["log"])
    kept, gone = str(record.get("folder", "")), str(record.get("goes", ""))
    if said := _died(record):
        said = f"it had ended before: {said}"
    else:
        os.kill(pid, signal.SIGTERM)
        _await_end(pid, record["created_s"])
        said = "ended"
    if kept:
        said += f"; its state and logs are in {kept}"
    else:
        log.unlink(missing_ok=True)
    if gone:
        said += f"; its folder {gone} is removed (weft up --dir DIR keeps one)"
    path.unlink(missing_ok=True)
    return said


def told_of_end(text: str) -> str:
    """Return how a cluster ended that was detached, and whose address an error names; or nothing.

    Where nothing answers, say why, as nobody saw what `weft up` said then.
    """
    with contextlib.suppress(WeftError, OSError):
        for path in _home().glob("up-*.json"):
            record = _read(path)
            if record is None or not re.search(rf" {re.escape(record['address'])}\b", text):
                continue
            if said := _died(record):
                return f"what `weft up --detach` started has ended: {said} (see {record['log']})"
    return ""


def _died(record: dict[str, Any]) -> str:
    """Return why a cluster has ended without `weft down`; empty: it runs."""
    if _created_s(int(record["pid"])) == record["created_s"]:
        return ""
    # An error is the last that it says; who was killed says none.
    last = _lines(Path(record["log"]))[-1:]
    said = [line.removeprefix(_ERROR) for line in last if line.startswith(_ERROR)]
    return said[0] if said else "it did not say why"


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        return []


def _read(path: Path) -> dict[str, Any] | None:
    """Return the record of a detached cluster; None where there is none."""
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record


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
