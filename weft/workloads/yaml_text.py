"""YAML text as plain data, by the core schema of YAML 1.2 (chapter 10.3), without surprises.

`no` is a text and `1e3` a number; dates stay text. Refused: aliases (a few hundred bytes of them
can stand for gigabytes), keys that occur twice, tags but those of the core schema, infinity and
NaN, and nesting deeper than DEPTH_MAX. One pass over the parser's events, without recursion.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from weft.model.errors import InputError

DEPTH_MAX = 100
_WORDS = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NO_KEY = object()
_TAG = "tag:yaml.org,2002:"


class _Level:
    """An open table or list, with the key that waits for its value."""

    __slots__ = ("data", "key")

    def __init__(self, data: dict[Any, Any] | list[Any]) -> None:
        self.data = data
        self.key: Any = _NO_KEY


def parse_yaml(text: str, place: str) -> list[Any]:
    """Return the documents of a YAML text; raises InputError with line and column."""
    try:
        return list(_documents(yaml.parse(text, Loader=yaml.CSafeLoader), place))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{place} line {mark.line + 1} column {mark.column + 1}" if mark else place
        raise InputError(where, f"not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(place, f"not valid YAML: {' '.join(str(error).split())}") from None


def _documents(events: Any, place: str) -> Iterator[Any]:
    levels: list[_Level] = [_Level([])]
    for event in events:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            _add(levels[-1], _scalar(event, place), event, place)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            data: Any = {} if kind is yaml.MappingStartEvent else []
            _check_tag(event, ("map",) if kind is yaml.MappingStartEvent else ("seq",), place)
            _add(levels[-1], data, event, place)
            levels.append(_Level(data))
            if len(levels) > DEPTH_MAX:
                _refuse(event, place, f"nested deeper than {DEPTH_MAX}")
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            levels.pop()
        elif kind is yaml.AliasEvent:
            _refuse(event, place, f"aliases (*{event.anchor}) are not read: write it out")
        elif kind is yaml.DocumentEndEvent:
            yield levels[0].data[0]
            levels = [_Level([])]


def _add(level: _Level, value: Any, event: Any, place: str) -> None:
    data = level.data
    if isinstance(data, list):
        data.append(value)
    elif level.key is _NO_KEY:
        if isinstance(value, dict | list):
            _refuse(event, place, "a key must be a plain name")
        # A key is its text, as in JSON: a queue may be named 2020, or on.
        key: str = event.value
        if key in data:
            _refuse(event, place, f"key {key!r} occurs twice")
        level.key = key
    else:
        data[level.key] = value
        level.key = _NO_KEY


def _scalar(event: Any, place: str) -> Any:
    value: str = event.value
    if not event.implicit[0] or event.tag is not None:
        if event.tag is not None:
            _check_tag(event, ("str",), place)
        return value
    if value in _WORDS:
        return _WORDS[value]
    if value[0] not in "-+.0123456789":
        return value
    if _INTEGER.fullmatch(value):
        return int(value)
    if _FLOAT.fullmatch(value):
        return float(value)
    if _NOT_FINITE.fullmatch(value):
        _refuse(event, place, f"{value} is not a finite number")
    return value


def _check_tag(event: Any, known: tuple[str, ...], place: str) -> None:
    if event.tag is not None and event.tag not in ("!", *(f"{_TAG}{name}" for name in known)):
        _refuse(event, place, f"tag {event.tag} is not read")


def _refuse(event: Any, place: str, problem: str) -> NoReturn:
    mark = event.start_mark
    raise InputError(f"{place} line {mark.line + 1} column {mark.column + 1}", problem)
