"""Fill a folder with all that a host needs to install Weft without a network.

`dependencies.tar` holds what Weft needs (and pip itself), for this machine's kind of processor and
the Python that runs this; `weft_rm-*.whl` is the checkout; `RELEASE` names both by what is in them.
Dependencies are fetched again only when the constraints changed.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("weft", "rm", "am", "nm", "sim", "lab")


def make(folder: Path, version: str = "") -> str:
    """Fill the folder and answer the release's name; `version` replaces the checkout's."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("weft_rm-*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="weft-wheelhouse-") as name:
        wheel = _build(Path(name), version)
        dependencies = _dependencies(folder, wheel)
        shutil.copy2(wheel, folder)
    code = hashlib.sha256((wheel_digest(folder) + dependencies).encode()).hexdigest()[:8]
    release = f"{wheel.name.split('-')[1]}-{code}"
    (folder / "RELEASE").write_text(release + "\n")
    return release


def wheel_digest(folder: Path) -> str:
    """Return a digest of what is in Weft's wheel, without the times of its files."""
    import zipfile

    (wheel,) = folder.glob("weft_rm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        sums = [f"{item.filename} {item.CRC}" for item in archive.infolist()]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def _build(folder: Path, version: str) -> Path:
    """Build Weft's wheel from a copy: building leaves files behind, and the version may differ."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", ".*cache*")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    if version:
        project = (source / "pyproject.toml").read_text()
        lines = [
            f'version = "{version}"' if line.startswith("version = ") else line
            for line in project.splitlines()
        ]
        (source / "pyproject.toml").write_text("\n".join(lines) + "\n")
    pip("wheel", "--no-deps", "--wheel-dir", str(folder / "wheel"), str(source))
    (wheel,) = (folder / "wheel").glob("weft_rm-*.whl")
    return wheel


def _dependencies(folder: Path, wheel: Path) -> str:
    """Make `dependencies.tar` unless it is what the constraints say; return what that is."""
    constraints = (ROOT / "constraints.txt").read_bytes()
    project = (ROOT / "pyproject.toml").read_bytes()
    wanted = hashlib.sha256(constraints + project + sys.version.encode()).hexdigest()
    archive, mark = folder / "dependencies.tar", folder / "dependencies.sha256"
    if archive.exists() and mark.exists() and mark.read_text() == wanted:
        return wanted
    with tempfile.TemporaryDirectory(prefix="weft-wheels-") as name:
        pip(
            "download",
            "--only-binary",
            ":all:",
            "-c",
            str(ROOT / "constraints.txt"),
            "--dest",
            name,
            str(wheel),
            "pip",
        )
        with tarfile.open(archive, "w") as tar:
            for path in sorted(Path(name).glob("*.whl")):
                if path.name != wheel.name:
                    tar.add(path, path.name)
    mark.write_text(wanted)
    return wanted


def pip(*arguments: str) -> None:
    """Run pip; raises SystemExit with what it said."""
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")


def main(arguments: Sequence[str]) -> int:
    """Print the release's name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "wheelhouse", metavar="DIR")
    parser.add_argument("--version", default="", help="instead of the checkout's")
    given = parser.parse_args(arguments)
    print(make(given.out, given.version))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
