"""Make the wheel and the sdist in dist/: a commit gives the same bytes at any time, in any folder.

    make dist
    make dist-same     # builds twice, in different folders at different times, and compares

Files are copied with times and modes of their own, since archives keep both: the time is
SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/), else the commit's.
What is built stands in no checkout, so nothing that lies about there gets into an archive.
"""

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
UMASK = 0o022


def epoch_s() -> int:
    """Return the time that archives name, in Unix s; SystemExit where no commit tells one."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    told = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if told.returncode:
        raise SystemExit("no git history here: set SOURCE_DATE_EPOCH")
    return int(told.stdout)


def make(folder: Path) -> list[Path]:
    """Put the wheel and the sdist into a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    when = epoch_s()
    with tempfile.TemporaryDirectory(prefix="weft-dist-") as work:
        source = Path(work) / "weft"
        _copy(source, when)
        _run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", work, source],
            {"SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "0"},
        )
        (wheel,) = Path(work).glob("*.whl")
        (sdist,) = Path(work).glob("*.tar.gz")
        _rewrite(sdist, folder / sdist.name, when)
        shutil.copyfile(wheel, folder / wheel.name)
    return [folder / wheel.name, folder / sdist.name]


def digests(folder: Path, native: bool) -> dict[str, str]:
    """Return the SHA-256 of each archive of a folder, and of the compiled wheel in `native/`."""
    patterns = ["*.whl", "*.tar.gz", *(["native/*.whl"] if native else [])]
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _copy(source: Path, when: int) -> None:
    """Copy what git tracks, or would track."""
    listed = _run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    for name in filter(None, listed.split("\0")):
        original, copy = ROOT / name, source / name
        if original.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original, copy)
            copy.chmod(0o755 if os.access(original, os.X_OK) else 0o644)
            os.utime(copy, (when, when))


def _rewrite(made: Path, to: Path, when: int) -> None:
    """Write an sdist anew without what differs from build to build: times, owners, order."""
    with (
        tarfile.open(made) as old,
        to.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = when, 0, 0, "", ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)


def _run(command: Sequence[str | Path], more: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | (more or {}),
        umask=UMASK,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command[0]}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def same(native: bool) -> int:
    """Build once more, elsewhere and with another umask; return 1 unless dist/ has these bytes."""
    from tools import make_native, make_native_wheel

    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory(prefix="weft-again-") as name:
            wheel, _ = make(Path(name))
            if native:
                make_native.make(Path(name) / "compiled")
                make_native_wheel.make(Path(name) / "native", Path(name) / "compiled", wheel)
            again = digests(Path(name), native)
    finally:
        os.umask(before)
    there = digests(DIST, native)
    for name in sorted(there.keys() | again.keys()):
        verdict = "same" if there.get(name) == again.get(name) else "DIFFERS"
        print(f"{verdict:8}{name} {there.get(name, 'not there')}")
    return int(there != again)


def main(arguments: Sequence[str]) -> int:
    """Build into dist/, or compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--same", action="store_true", help="build again and compare with dist/")
    parser.add_argument("--native", action="store_true", help="the compiled wheel, too")
    given = parser.parse_args(arguments)
    if given.same:
        return same(given.native)
    shutil.rmtree(DIST, ignore_errors=True)
    for path in make(DIST):
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
