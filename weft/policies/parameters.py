"""Parameters given by name, often as text, read by the defaults of what takes them.

A dataclass, a class or a function says which parameters there are and of which kind: that of each
default. A name ending in `_s` is a duration and never negative.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum

from weft.model.errors import InputError
from weft.model.json_types import Arguments, Options

_SAID = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def known_parameters(target: Callable[..., object]) -> Arguments:
    """Return name -> default of what `target` takes by name, without those that have no default."""
    try:
        found = inspect.signature(target).parameters.values()
    except ValueError:
        # A compiled class that takes no arguments has no signature.
        return {}
    if is_dataclass(target):
        # Defaults that a factory makes are known only from an instance.
        made = target()
        return {each.name: getattr(made, each.name) for each in found}
    return {
        each.name: each.default for each in found if each.default is not inspect.Parameter.empty
    }


def read_parameters(
    target: Callable[..., object], given: Options, place: str, owner: str = ""
) -> Arguments:
    """Read the given parameters; raises InputError for an unknown name or a wrong value.

    `place` is before their names where they are told, as `asker`, `owner` is who has them.
    """
    if not given:
        return {}
    known = known_parameters(target)
    read: Arguments = {}
    for key, value in given.items():
        where = f"{place}.{key}"
        if key not in known:
            names = ", ".join(known) or "none"
            raise InputError(where, f"unknown parameter{owner and f' of {owner}'}; known: {names}")
        read[key] = read_parameter(key, known[key], value, where)
    return read


def read_parameter(name: str, default: object, value: object, place: str) -> object:
    """Return one value of the kind of its default; raises InputError."""
    if isinstance(default, bool):
        text = str(value).lower()
        if text not in _SAID:
            raise InputError(place, f"expected true or false, got {value!r}")
        return _SAID[text]
    if isinstance(default, Enum):
        try:
            return type(default)(value)
        except ValueError:
            names = ", ".join(str(each.value) for each in type(default))
            raise InputError(place, f"expected one of {names}, got {value!r}") from None
    if isinstance(default, str):
        return str(value)
    if isinstance(default, Mapping) or _is_amounts(value):
        return _amounts(value, place)
    if isinstance(default, int | float):
        number = _number(value, place, low=0.0 if name.endswith("_s") else -math.inf)
        if isinstance(default, float):
            return number
        if number != number // 1 or math.isinf(number):
            raise InputError(place, f"expected a whole number, got {value!r}")
        return int(number)
    return value


def _number(value: object, place: str, low: float) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise InputError(place, f"expected a number, got {value!r}")
    if number < low:
        raise InputError(place, f"expected a number from {low:g}, got {value!r}")
    return number


def _is_amounts(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, str) and ":" in value)


def _amounts(value: object, place: str) -> dict[str, float]:
    """Return amounts from `vcores:0.1,memory_mb:256`, or from a table of the same."""
    if isinstance(value, Mapping):
        pairs = [(str(name), amount) for name, amount in value.items()]
    else:
        texts = [text for text in str(value).split(",") if text]
        pairs = [(text.partition(":")[0], text.partition(":")[2]) for text in texts]
    read = {}
    for name, amount in pairs:
        if not name or amount == "":
            raise InputError(place, f"expected name:amount,name:amount, got {value!r}")
        read[name.strip()] = _number(amount, place, low=0.0)
    return read


def split_settings(pairs: tuple[str, ...] | list[str], place: str = "--set") -> dict[str, str]:
    """Read `key=value` texts; raises InputError."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(place, f"expected key=value, got {pair!r}")
        settings[key] = value
    return settings
