"""Records: immutable to the type checker, cheap to make at run time.

`dataclass(frozen=True)` sets every field through `object.__setattr__`, which makes an event three
times as dear as it need be, and a simulation makes dozens of them for every task. A record is
frozen for mypy only; nothing may assign to one, and the cores are checked strictly.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """A slotted, hashable dataclass that type checkers hold to be frozen."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
