"""Draw docs/lifecycles.md from the roles' `lifecycle.py`; `--check` fails on drift."""

import importlib
import sys

from tools import drawn
from weft.protocol import lifecycle

ROLES = {
    "rm.state.lifecycle": "Resource Manager",
    "am.lifecycle": "Application Master",
    "nm.lifecycle": "Node Manager",
}


def draw() -> str:
    """Return the whole page."""
    parts = [
        "# Life cycles\n",
        "Drawn from the tables in the roles' `lifecycle.py` by `make diagrams`; "
        "`make check` fails when this page is not what the code does.\n",
    ]
    for name, title in ROLES.items():
        module = importlib.import_module(name)
        parts.append(f"## {title}\n")
        for cycle in module.LIFECYCLES:
            parts.append(f"### {cycle.name}\n\n{lifecycle.drawn(cycle)}")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(drawn.main("lifecycles.md", draw(), sys.argv[1:]))
