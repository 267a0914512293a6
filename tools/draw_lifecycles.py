"""Draw docs/lifecycles.md from the tables of `<role>/lifecycle.py`; `--check` fails on drift."""

import importlib
import sys
from pathlib import Path

from weft.lifecycle import mermaid

ROLES = {"rm": "Resource Manager", "am": "Application Master", "nm": "Node Manager"}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "lifecycles.md"


def draw() -> str:
    """The whole page; a role without a `lifecycle` module has no section."""
    parts = [
        "# Life cycles\n",
        "Drawn from the tables in `<role>/lifecycle.py` by `make diagrams`; "
        "`make check` fails when this page is not what the code does.\n",
    ]
    for package, title in ROLES.items():
        name = f"{package}.lifecycle"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            continue
        parts.append(f"## {title}\n")
        for cycle in module.LIFECYCLES:
            parts.append(f"### {cycle.name}\n\n```mermaid\n{mermaid(cycle)}```\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it; answers the exit code."""
    page = draw()
    if "--check" in arguments:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            print(f"{PAGE.name} is not what the tables say: run `make diagrams`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
