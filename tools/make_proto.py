"""Generate the stubs in weft/wire from proto/*.proto; `--check` fails on drift.

`import "weft/wire/x.proto"` in the sources together with `-I weft/wire=proto` makes the stubs
import each other by their real module names, so nothing has to be rewritten.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
WIRE = ROOT / "weft" / "wire"
STUBS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(out: Path) -> dict[str, str]:
    """Generate every stub into `out`; returns their texts by file name."""
    sources = sorted(PROTO.glob("*.proto"))
    services = [source for source in sources if "\nservice " in source.read_text("utf-8")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

    def compile_(files: list[Path], *flags: str) -> None:
        names = [f"weft/wire/{source.name}" for source in files]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-Iweft/wire={PROTO}"]
        subprocess.run([*command, *flags, *names], check=True, env={**os.environ, "PATH": path})

    if shutil.which("protoc-gen-mypy", path=path) is None:
        raise SystemExit("protoc-gen-mypy is missing: pip install -e '.[dev]'")
    compile_(sources, f"--python_out={out}", f"--mypy_out=quiet:{out}")
    compile_(services, f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}")
    made = out / "weft" / "wire"
    return {path.name: path.read_text("utf-8") for pattern in STUBS for path in made.glob(pattern)}


def main(arguments: list[str]) -> int:
    """Write the stubs, or with `--check` compare them; answers the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder))
    there = {path.name: path for pattern in STUBS for path in WIRE.glob(pattern)}
    if "--check" in arguments:
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
        (WIRE / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
