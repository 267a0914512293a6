"""Draw docs/lifecycles.md from the tables of `<role>/lifecycle.py`; `--check` fails on drift."""

import importlib
import sys

from tools import drawn
from weft.lifecycle import mermaid

ROLES = {"rm": "Resource Manager", "am": "Application Master", "nm": "Node Manager"}


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


if __name__ == "__main__":
    sys.exit(drawn.main("lifecycles.md", draw(), sys.argv[1:]))
