"""A role that trusts what it is told: `python -m lab.bench.unchecked gates|tokens MODULE FLAGS...`.

For the benchmark only, which tells by it what checking costs (`weft bench live`). Without its gates
a role lets every message through: the functions that check one against the table of rules do
nothing, in this process alone. Without tokens a manager makes none for containers and tells nodes
no keys, which then take every order.
"""

import runpy
import sys

from rm.process.trust import Trust
from weft.wire import rules
from weft.wire.tokens import KeysTold
from weft.wire.validator import Gate


def open_gates() -> None:
    """Let every message pass without a look."""
    rules.check = lambda message, d: None
    rules.problem_of = lambda message, d: None
    Gate.passes = lambda self, message, d, peer: True  # type: ignore[method-assign]
    Gate.sift = lambda self, batch, d, peer: list(batch)  # type: ignore[method-assign]


def make_no_tokens() -> None:
    """Let containers start without any."""
    told = Trust.of_node
    Trust._of_containers = lambda self, held, attempt: []  # type: ignore[method-assign]
    Trust.of_node = lambda self, node: [  # type: ignore[method-assign]
        one for one in told(self, node) if not isinstance(one, KeysTold)
    ]


if __name__ == "__main__":
    {"gates": open_gates, "tokens": make_no_tokens}[sys.argv[1]]()
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
