"""The shared words of Weft: ids, resources, jobs, messages and effects, one meaning each.

For scripts and notebooks: `weft.simulate(...)`, `weft.plan(...)` and `weft.results.load(DIR)`.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Import `weft.simulate`, `weft.model.plan` and `weft.results` when they are first used."""
    if name in ("plan", "results"):
        return import_module(f"weft.{name}")
    if name == "simulate":
        return import_module("lab.functions").simulate
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
