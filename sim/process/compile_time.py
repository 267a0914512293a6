"""How long compiling kernels takes: it is the first run's, and says nothing of the next one's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module


@dataclass(slots=True)
class Compiling:
    """How long compiling took while it was looked at, s; known when that is over."""

    took_s: float = 0.0


@contextmanager
def compiling() -> Iterator[Compiling]:
    """Measure what compiling takes meanwhile."""
    told = Compiling()

    def add(took_s: float) -> None:
        told.took_s += took_s

    with import_module("numba.core.event").install_timer("numba:compile", add):
        yield told
