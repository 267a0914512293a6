"""Records: immutable to the type checker, cheap to make at run time.

`dataclass(frozen=True)` sets every field through `object.__setattr__`, which triples the cost
of creating an event, and a simulation creates dozens of them for every task. A record is
frozen for mypy only; nothing may assign to one, and the cores are checked strictly.
"""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

from weft.plain import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a slotted, hashable dataclass that type checkers hold to be frozen."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


def changed(value: T, **by: object) -> T:
    """Return a copy of a record with some of its fields changed."""
    copy: T = replace(value, **by)  # type: ignore[type-var]
    return copy


def as_dict(value: "DataclassInstance") -> Json:
    """Return a record's fields by name, as they stand."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
