"""Draw docs/yarn-properties.md from the list that import-yarn goes by; `--check` fails on drift."""

import sys

from tools import drawn
from weft.workloads.yarn_properties import PROPERTIES

HEAD = """# YARN's properties

Drawn from the code by `make diagrams`. What `weft import-yarn` makes of every documented property
of YARN's schedulers: {taken} of {all} are taken over, {left} are named with the reason. A test
puts each of them into a configuration.

| property | in Weft |
|---|---|
"""


def draw() -> str:
    """Return the whole page."""
    taken = sum(bool(one.to) for one in PROPERTIES)
    head = HEAD.format(taken=taken, all=len(PROPERTIES), left=len(PROPERTIES) - taken)
    rows = [f"| `{one.name}` | {one.to or f'left out: {one.why}'} |" for one in PROPERTIES]
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(drawn.main("yarn-properties.md", draw(), sys.argv[1:]))
