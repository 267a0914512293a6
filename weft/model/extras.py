"""Packages that only some commands need: each is an extra of Weft's own package."""

from importlib import import_module
from typing import Any

from weft.model.errors import WeftError


class MissingExtraError(WeftError):
    """An optional package is not installed; the text says how to install it."""


def require(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional package; raises WeftError that says how to install it.

    A command asks before it works, so that nothing is computed that cannot be written.
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}: pip install 'weft-rm[{extra}]'"
        ) from None
