"""Records: immutable, cheap to make, and dataclasses to whoever looks into them.

A simulation makes dozens of them for every task, a service some for every message. A dataclass's
`__init__` is Python code, and a frozen one's calls `object.__setattr__` for each field; a `Struct`
of msgspec is made in C, in half the time of the former.

What is kept of each task is made in C as well, but its fields change (`slotted`).
"""

from dataclasses import Field, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, dataclass_transform

from msgspec import Struct, StructMeta

from weft.model.json_types import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
# Each class makes these attributes of its own, so they are not copied from another.
_MADE_ANEW = {"__dict__", "__weakref__"}


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class immutable, hashable and a dataclass.

    Raises TypeError for one with a base or a `field(...)`, of which nothing would be left.
    """
    own = _own(cls)
    own["__dataclass_fields__"] = _fields_of(cls)
    made = StructMeta(cls.__name__, (Struct,), own, frozen=True)
    return cast("type[T]", made)


@dataclass_transform()
def slotted(cls: type[T]) -> type[T]:
    """Make a class with slots for its fields, which may change; no two of its objects are equal.

    Its `__init__` is C as a record's is. Raises TypeError as `record` does.
    """
    own = {**_own(cls), "__reduce__": _parts_of}
    made = StructMeta(cls.__name__, (Struct,), own, eq=False)
    return cast("type[T]", made)


def _parts_of(value: Struct) -> tuple[object, ...]:
    """Return what a copy is made of, its fields last: they may lead back to it.

    A `Struct` has them at once, so that such a copy would be made twice, or for ever.
    """
    names = value.__struct_fields__
    state = {name: getattr(value, name) for name in names}
    return _blank, (type(value), len(names)), (None, state)


def _blank(kind: type[Struct], fields_: int) -> Struct:
    """Return an object whose fields are still to be set."""
    return kind(*(None,) * fields_)


def _own(cls: type) -> dict[str, Any]:
    """Return what a class says itself, of which another one can be made."""
    own = {name: value for name, value in vars(cls).items() if name not in _MADE_ANEW}
    if cls.__bases__ != (object,) or any(isinstance(value, Field) for value in own.values()):
        raise TypeError(f"{cls.__name__}: a record has no base, and plain defaults only")
    return own


def _fields_of(cls: type) -> object:
    """Return what `dataclasses` knows of a class's fields.

    Methods that nobody calls are not made: each would be compiled, as each process starts.
    """
    plain = type(cls.__name__, (), dict(vars(cls)))
    bare = dataclass(init=False, repr=False, eq=False, match_args=False)
    return vars(bare(plain))["__dataclass_fields__"]


def changed(value: T, **by: object) -> T:
    """Return a copy of a record with some of its fields changed."""
    copy: T = replace(value, **by)  # type: ignore[type-var]
    return copy


def as_dict(value: "DataclassInstance") -> Json:
    """Return a record's fields by name, as they stand."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
