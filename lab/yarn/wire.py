"""`python -m lab.yarn.wire FILE`: what the real manager's REST API answers, as names and types.

A cluster of YARN's own (MiniYARNCluster: a manager, two nodes, an application that failed, one that
runs, one that was killed) is asked, and each answer is kept as its status and its shape: no values.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.yarn.compare import BUILD, HERE, class_path


def shape(value: Any) -> Any:
    """Return the names and types of an answer; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "null" if value is None else "text"


def differences(theirs: Any, ours: Any, at: str = "") -> Iterator[str]:
    """Yield what one shape lacks (-), has more (+), or has of another type (~)."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() - ours.keys():
            yield f"-{at}.{key}"
        for key in ours.keys() - theirs.keys():
            yield f"+{at}.{key}"
        for key in theirs.keys() & ours.keys():
            yield from differences(theirs[key], ours[key], f"{at}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if theirs and ours:
            yield from differences(theirs[0], ours[0], at)
    elif theirs != ours:
        yield f"~{at}"


def kept(status: int, body: Any) -> dict[str, Any]:
    """Return what is kept of an answer: an error's words are, as clients may go by them."""
    error = body.get("RemoteException") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return {"status": status, "error": [error["exception"], error["message"]]}
    return {"status": status, "shape": shape(body)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the real manager, and keep its answers in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    jars, out = class_path(), BUILD / "wire"
    out.mkdir(parents=True, exist_ok=True)
    made = ["javac", "-nowarn", "-cp", jars, "-d", str(out), str(HERE / "Wire.java")]
    subprocess.run(made, check=True)
    rows = (out / "answers.tsv").resolve()
    run = ["java", "-cp", f"{out.resolve()}:{jars}", "Wire", str(rows), "capacity"]
    subprocess.run(run, check=True, cwd=out, stderr=subprocess.DEVNULL, timeout=600)
    found = []
    for line in rows.read_text(encoding="utf-8").splitlines():
        verb, path, status, body = line.split("\t", 3)
        # A page of the servlet's own is no answer of the API.
        data = json.loads(body) if body.startswith("{") and '"servlet"' not in body else None
        found.append({"verb": verb, "path": path, **kept(int(status), data)})
    text = ",\n".join(json.dumps(one, sort_keys=True) for one in found)
    given.file.write_text(f"[{text}]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
