"""Weft: a resource manager in the style of YARN for jobs made of dependent tasks.

For scripts and notebooks: `weft.simulate(...)`, `weft.plan(...)` and `weft.results.load(DIR)`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.functions import plan, simulate
    from weft import results

__all__ = ["plan", "results", "simulate"]


def __getattr__(name: str) -> Any:
    """Import what `__all__` names when it is first used: the roles need none of it."""
    if name == "results":
        return import_module("weft.results")
    if name in __all__:
        return getattr(import_module("lab.functions"), name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
