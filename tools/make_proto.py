"""Generate the stubs of `weft/` from proto/*.proto; `--check` fails on drift.

The sources import each other by bare name, so that `protoc -I proto` works for anybody in any
language. Our own stubs lie in a package, so the lines in which they name each other are mended.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
WIRE = ROOT / "weft" / "wire"
# Sources whose stubs lie elsewhere than in the wire's folder.
FOLDERS = {"hadoop.proto": ROOT / "weft" / "yarn", "etcd.proto": ROOT / "weft" / "ha"}
STUBS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(out: Path, folder: Path) -> dict[str, str]:
    """Generate the stubs of one folder into `out`; return their texts by file name."""
    sources = [p for p in sorted(PROTO.glob("*.proto")) if FOLDERS.get(p.name, WIRE) == folder]
    place = folder.relative_to(ROOT).as_posix()
    services = [source for source in sources if "\nservice " in source.read_text("utf-8")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

    def compile_(files: list[Path], *flags: str) -> None:
        names = [source.name for source in files]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}"]
        subprocess.run([*command, *flags, *names], check=True, env={**os.environ, "PATH": path})

    if shutil.which("protoc-gen-mypy", path=path) is None:
        raise SystemExit("protoc-gen-mypy is missing: pip install -e '.[dev]'")
    compile_(sources, f"--python_out={out}", f"--mypy_out=quiet:{out}")
    if services:
        compile_(services, f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}")
    made = {path.name: path.read_text("utf-8") for pattern in STUBS for path in out.glob(pattern)}
    package = place.replace("/", ".")
    return {name: mended(text, package) for name, text in made.items()}


def mended(text: str, package: str) -> str:
    """Return a stub's text with the modules that it names in their package."""
    text = re.sub(r"^import (\w+_pb2)\b", rf"from {package} import \1", text, flags=re.MULTILINE)
    return re.sub(r"(DESCRIPTOR, )'(\w+_pb2)'", rf"\1'{package}.\2'", text)


def main(arguments: list[str]) -> int:
    """Write the stubs, or with `--check` compare them; returns the exit code."""
    folders = (WIRE, *FOLDERS.values())
    return max(_folder(folder, check="--check" in arguments) for folder in folders)


def _folder(folder: Path, *, check: bool) -> int:
    with tempfile.TemporaryDirectory() as out:
        made = generate(Path(out), folder)
    there = {path.name: path for pattern in STUBS for path in folder.glob(pattern)}
    if check:
        drifted = [
            name
            for name in sorted(made.keys() | there.keys())
            if name not in made or name not in there or there[name].read_text("utf-8") != made[name]
        ]
        if drifted:
            print(f"stubs differ from proto/: {', '.join(drifted)}: `make proto`", file=sys.stderr)
        return 1 if drifted else 0
    for name in there.keys() - made.keys():
        there[name].unlink()
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
