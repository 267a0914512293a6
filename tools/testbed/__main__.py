"""`python -m tools.testbed [--spark]`: make the testbed, keep Weft to its promises, take it away.

The outer process looks whether it can be done, prepares what needs the machine's network (wheels,
Ansible), makes the control groups, and starts the inner one in network, mount and process
namespaces of its own. Whatever happens to either, all that was started ends with the inner one, and
its network and mounts with it. Exit code 0: kept, or skipped with a reason; 1: a promise was not.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.make_wheelhouse import make
from tools.testbed.bed import Bed
from tools.testbed.groups import Groups
from tools.testbed.host import TOPS
from tools.testbed.words import (
    NEXT_WHEELHOUSE,
    RESULT,
    ROOT,
    WHEELHOUSE,
    Failure,
    Skip,
    run,
    say,
)

PROGRAMS = ("ip", "iptables", "mount", "nsenter", "ps", "setpriv", "ssh", "ssh-keygen", "unshare")
PREFIX = "weft-testbed-"
SSHD = "/usr/sbin/sshd"
ANSIBLE = "ansible-core>=2.17,<2.20"


# -- outside ---------------------------------------------------------------------------------------


def look(folder: Path) -> None:
    """Raise Skip where a testbed cannot be made."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Skip("needs root on Linux")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if not Path(SSHD).exists():
        missing.append(SSHD)
    if missing:
        raise Skip(f"needs {', '.join(missing)} (Debian: openssh-server iptables iproute2)")
    if folder.resolve().parts[1] in TOPS:
        raise Skip(f"needs a folder for temporary files outside of {', '.join(TOPS)}: set TMPDIR")
    for name in ("upper", "work"):
        (folder / name).mkdir()
    try:
        run(
            "unshare",
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--mount-proc",
            "--propagation",
            "private",
            "sh",
            "-ec",
            f"mount -t overlay -o lowerdir=/etc,upperdir={folder}/upper,workdir={folder}/work "
            "testbed /etc; ip link add name probe0 type bridge; "
            "iptables -A INPUT -m statistic --mode random --probability 0.5 -j DROP",
        )
    except Failure as error:
        raise Skip(f"namespaces, overlays, bridges and iptables are needed: {error}") from None


def ansible() -> Path:
    """Return Ansible in an environment of its own, as Weft does not need it. Raises Skip."""
    folder = ROOT / "build" / "ansible"
    program = folder / "bin" / "ansible-playbook"
    if not program.exists():
        say(f"installing {ANSIBLE}")
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        try:
            run(sys.executable, "-m", "venv", "--clear", str(folder))
            run(*pip, ANSIBLE)
        except Failure as error:
            raise Skip(f"Ansible cannot be had: {error}") from None
    return program


def spark_installed() -> str:
    """Return the folder of an environment with PySpark, which takes the machine's network."""
    from tools.spark_kit import VERSION, install

    if shutil.which("java") is None or not (venv := install(VERSION)):
        raise Skip("needs Java and PySpark")
    return venv


def releases() -> str:
    """Make two: the checkout, and the same under another version to upgrade to."""
    first = make(WHEELHOUSE)
    NEXT_WHEELHOUSE.mkdir(parents=True, exist_ok=True)
    for name in ("dependencies.tar", "dependencies.sha256"):
        (NEXT_WHEELHOUSE / name).unlink(missing_ok=True)
        os.link(WHEELHOUSE / name, NEXT_WHEELHOUSE / name)
    return f"{first}, {make(NEXT_WHEELHOUSE, first.split('-')[0] + '+next')}"


def remove_stale() -> None:
    """Remove what testbeds left whose first process was killed without a chance to clean up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with suppress(Skip):
                Groups(folder.name).remove()
            shutil.rmtree(folder, ignore_errors=True)


def outside(spark: bool) -> int:
    """Prepare, run the inner process, clean up."""
    remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    groups = None
    inner: subprocess.Popen[bytes] | None = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        look(folder)
        groups = Groups(folder.name)
        program = ansible()
        more = ["--spark", spark_installed()] if spark else []
        say(f"releases {releases()}")
        inner = subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                "unshare",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--propagation",
                "private",
                sys.executable,
                "-m",
                "tools.testbed",
                "--inside",
                str(folder),
                "--ansible",
                str(program),
                *more,
            ],
            cwd=ROOT,
        )
        code = inner.wait()
    except Skip as reason:
        say(f"skipped: {reason}")
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        if inner is not None and inner.poll() is None:
            inner.kill()
            inner.wait()
        left = groups.remove() if groups is not None else []
        shutil.rmtree(folder, ignore_errors=True)
    if left or folder.exists():
        say(f"left behind: {left or folder}")
        return 1
    return code


# -- inside ----------------------------------------------------------------------------------------


def inside(folder: Path, program: Path, spark: str) -> int:
    """Make the bed, hold every promise, say what was seen; `spark`: the folder of PySpark."""
    from tools.testbed import proofs
    from tools.testbed import spark as on_spark

    groups = Groups(folder.name)
    python = Path(sys.executable).resolve()
    promises: Sequence[Callable[[Any], str]] = on_spark.PROOFS
    if spark:
        bed: Bed = on_spark.SparkBed(folder, groups, program, python, Path(spark))
    else:
        bed, promises = Bed(folder, groups, program, python), proofs.PROOFS
    result = RESULT.with_name("spark.json") if spark else RESULT
    seen: list[dict[str, Any]] = []
    code = 0
    began_s = time.monotonic()
    try:
        bed.start()
        say(f"{len(bed.hosts)} hosts are up")
        bed.serve()
        for proof in promises:
            since_s = time.monotonic()
            line = proof(bed)
            took_s = time.monotonic() - since_s
            seen.append({"promise": proof.__name__, "seen": line, "took_s": round(took_s, 1)})
            say(f"{proof.__name__} ({took_s:.0f} s): {line}")
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        code = 1
        say("FAILED: " + (str(error) if isinstance(error, Failure) else traceback.format_exc()))
        tell(bed)
    finally:
        bed.stop()
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps({"kept": code == 0, "promises": seen}, indent=1) + "\n")
    word = "passed" if code == 0 else "failed"
    say(f"{word}: {len(seen)} promises kept in {time.monotonic() - began_s:.0f} s")
    return code


def tell(bed: Bed) -> None:
    """Print what helps to find out why."""
    for part in bed.cluster.parts:
        say(f"-- the end of {part.log.name}\n{part.log.read_text()[-2000:]}")
    for host in bed.hosts:
        for log in sorted(host.path("/var/log/weft").glob("*.log")):
            say(f"-- the end of {host.name}'s {log.name}\n{log.read_text()[-2000:]}")


def main(arguments: Sequence[str]) -> int:
    """Run outside, unless told that this is the inner process."""
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    parser.add_argument(
        "--spark", nargs="?", const="install", default="", help="unmodified Spark on three hosts"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ansible", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.inside is not None:
        return inside(given.inside, given.ansible, given.spark)
    return outside(bool(given.spark))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
