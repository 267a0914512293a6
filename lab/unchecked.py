"""`python -m lab.unchecked MODULE FLAGS...`: a role whose gates let everything through.

For the benchmark only, which tells by it what validation costs (`weft bench live`): the functions
that check a message against the table of rules do nothing, in this process alone.
"""

import runpy
import sys

from weft.wire import rules
from weft.wire.gate import Gate


def open_gates() -> None:
    """Have every message pass without a look."""
    rules.check = lambda message, d: None
    rules.problem_of = lambda message, d: None
    Gate.passes = lambda self, message, d, peer: True  # type: ignore[method-assign]
    Gate.sift = lambda self, batch, d, peer: list(batch)  # type: ignore[method-assign]


if __name__ == "__main__":
    open_gates()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
