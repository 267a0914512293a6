"""Compare proto/ with the protos of the last release; what breaks callers is an error.

    make check                                # compares
    python -m tools.proto_breaks --record     # with a release: keep the protos as they are now

buf (https://buf.build/docs/breaking) judges: what clients compile must stay as it is by name, type
and number, and what roles say to each other must stay readable as bytes. docs/versions.md promises
both. The protos of etcd and Hadoop are theirs, not ours to break.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
RELEASED = PROTO / "released.binpb"
CLIENTS = ("client.proto", "matcher.proto", "words.proto")
ROLES = ("containers.proto", "host.proto", "master.proto", "tracker.proto")
BUF = Path(sys.executable).parent / "buf"


def breaks(proto: Path = PROTO, released: Path = RELEASED) -> list[str]:
    """Return a line for each change that breaks a caller of the released protos."""
    return [
        line
        for rules, files in (("PACKAGE", CLIENTS), ("WIRE", ROLES))
        for line in _judged(proto, released, rules, files)
    ]


def _judged(proto: Path, released: Path, rules: str, files: Sequence[str]) -> list[str]:
    config = json.dumps({"version": "v2", "breaking": {"use": [rules]}})
    paths = [word for file in files for word in ("--path", file)]
    done = _buf(proto, "breaking", ".", "--against", str(released), "--config", config, *paths)
    if done.returncode and not done.stdout.strip():
        raise SystemExit(f"buf: {done.stderr}")
    return done.stdout.splitlines()


def record() -> None:
    """Keep the protos as those of a release."""
    done = _buf(PROTO, "build", ".", "--exclude-source-info", "-o", str(RELEASED))
    if done.returncode:
        raise SystemExit(f"buf: {done.stderr}")


def _buf(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # An absolute path, as buf takes what `--against` names from its own folder.
    return subprocess.run([BUF, *words], cwd=folder, capture_output=True, text=True, check=False)


def main(arguments: Sequence[str]) -> int:
    """Print what breaks; returns 1 where something does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="keep proto/ as the released one")
    if parser.parse_args(arguments).record:
        record()
        return 0
    found = breaks()
    for line in found:
        print(f"proto/{line}", file=sys.stderr)
    if found:
        print("docs/versions.md promises that these stay within 1.x", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
