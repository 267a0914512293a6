"""What a core is made with as plain data, and back: a tape tells it once."""

import collections.abc
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
# These are no data: hooks of tests, and what is looked up when a tape is read.
_LEFT_OUT = frozenset({"buggify", "history"})


def to_data(value: Any) -> Any:
    """Return a dataclass with all that it holds as plain data; infinite numbers are Infinity."""
    if is_dataclass(value):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: to_data(one) for name, one in held.items() if name not in _LEFT_OUT}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_data(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [to_data(one) for one in value]
    return value


def from_data(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return the dataclass that the data was made of; what it does not say has its default."""
    hints = get_type_hints(kind)
    return kind(**{name: _read(hints[name], one) for name, one in data.items() if name in hints})


def _read(hint: Any, data: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        inner = arguments[:1] * len(data) if arguments[-1] is ... else arguments
        return tuple(_read(one, item) for one, item in zip(inner, data, strict=True))
    if origin in (dict, collections.abc.Mapping):
        return dict(data)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_data(hint, data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    return data
