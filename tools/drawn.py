"""Pages of the docs that are drawn from the code."""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main(name: str, page: str, arguments: list[str]) -> int:
    """Write a page, or with `--check` compare it; returns the exit code."""
    path = DOCS / name
    if "--check" not in arguments:
        path.write_text(page, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == page:
        return 0
    print(f"{name} is not what the code says: run `make diagrams`", file=sys.stderr)
    return 1
