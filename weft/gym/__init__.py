"""The Gymnasium environment of `lab.learning.gym`, loaded when something of it is asked for.

`import weft.gym` makes `gymnasium.make("weft/Scheduling-v0")` known.
"""

from importlib import import_module
from typing import Any

from weft.model.extras import require

for module in ("gymnasium", "greenlet"):
    require(module, "gym", "weft.gym")
_found = import_module("lab.learning.gym")


def __getattr__(name: str) -> Any:
    """Return `Scheduling`, `synthetic` and the other names of `lab.learning.gym`."""
    return getattr(_found, name)
