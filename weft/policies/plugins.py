"""Policies of other packages, by entry point or by `module:attribute`.

A package declares them in its `pyproject.toml`, and they are known by name where it is installed:

    [project.entry-points."weft.matchers"]
    mine = "my_package.matching:Mine"

`my_package.matching:Mine` names the same without an installation; the folder that a command runs in
is looked through last. Weft's own names come first, so no package can stand in for them unseen.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from weft.model.errors import InputError, PolicyError, WeftError
from weft.model.json_types import Options
from weft.policies.parameters import read_parameters

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MATCHERS, PLANNERS, ASKERS, IMPORTERS = (
    "weft.matchers",
    "weft.planners",
    "weft.askers",
    "weft.importers",
)
T = TypeVar("T")
P = ParamSpec("P")
_MISSING: Any = object()
_KINDS = {MATCHERS: "matcher", PLANNERS: "planner", ASKERS: "asker", IMPORTERS: "format"}


@cache
def _declared(group: str) -> "Mapping[str, EntryPoint]":
    # This import takes longer than a small command.
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=group)}


def names(group: str) -> list[str]:
    """Return names that installed packages declare for a group, sorted."""
    return sorted(_declared(group))


def is_outside(group: str, name: str) -> bool:
    """Return whether a name is not one of Weft's own to look up, but another package's."""
    return ":" in name or name in _declared(group)


def find(group: str, name: str) -> object:
    """Load a policy of another package; raises InputError with the reason when it cannot be."""
    declared = _declared(group).get(name)
    place = f"{_KINDS[group]} {name!r}"
    module, _, attribute = (declared.value if declared else name).partition(":")
    if "" not in sys.path:
        # The empty path is the folder that the command runs in.
        sys.path.append("")
    try:
        found = import_module(module)
    except BaseException as error:
        # A module of another package may raise anything when it is loaded.
        if not _is_broken(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise InputError(place, f"cannot load {module!r}: {reason}") from error
    look_up = _told(group, name, _attribute)
    for part in attribute.split(".") if attribute else ():
        found = look_up(found, part)
        if found is _MISSING:
            raise InputError(place, f"{module} has no {attribute!r}")
    return found


def _attribute(of: object, name: str) -> Any:
    return getattr(of, name, _MISSING)


def unknown(group: str, name: str, own: Iterable[str]) -> InputError:
    """Say that a name is neither Weft's own nor another package's."""
    kind = _KINDS[group]
    known = ", ".join([*own, *names(group)])
    return InputError(kind, f"unknown {kind} {name!r}; known: {known}, or module:attribute")


def build(group: str, name: str, options: Options, *needs: str) -> object:
    """Call a policy's factory with parameters by name; raises InputError.

    The defaults of the factory's arguments say which parameters there are, and of which kind.
    `needs` are the attributes that every policy of the group has.
    """
    place = f"{_KINDS[group]}.{name}"
    factory = find(group, name)
    if not callable(factory):
        raise InputError(place, f"is no class or function, but {type(factory).__name__}")

    def make() -> tuple[object, list[str]]:
        try:
            made = factory(**read_parameters(factory, options, _KINDS[group], name))
            return made, [need for need in needs if not hasattr(made, need)]
        except TypeError as error:
            raise InputError(place, str(error)) from error

    made, missing = _told(group, name, make)()
    if missing:
        raise InputError(place, f"is no {_KINDS[group]}: it has no {', '.join(missing)}")
    return made


class Contained:
    """A policy of another package whose methods are `contained`."""

    def __init__(self, group: str, name: str, policy: object) -> None:
        self._group, self._name, self._policy = group, name, policy

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "_policy":
            # A copy that is just being made has no attributes yet.
            raise AttributeError(attribute)
        found = contained(self._group, self._name, getattr)(self._policy, attribute)
        if callable(found):
            found = self.__dict__[attribute] = contained(self._group, self._name, found)
        return found

    def answer(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function of the policy; whatever it raises is a PolicyError with the line."""
        return _told(self._group, self._name, function)(*arguments, **named)


def kind_of(policy: object) -> type:
    """Return the class of a policy, contained or not."""
    return type(policy._policy if isinstance(policy, Contained) else policy)


def contained(group: str, name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Return a function of a policy that ends no process.

    What it raises beside exceptions, such as `SystemExit`, is a PolicyError.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except Exception:
            raise
        except BaseException as error:
            if not _is_broken(error):
                raise
            raise broken(group, name, error) from error

    return call


def _told(group: str, name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Return a function of a policy of which whatever it raises is a PolicyError with the line.

    Weft's own errors are passed on as they are.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except WeftError:
            raise
        except BaseException as error:
            if not _is_broken(error):
                raise
            raise broken(group, name, error) from error

    return call


_STOPS = (("asyncio.exceptions", "CancelledError"), ("greenlet", "GreenletExit"))


def _is_broken(error: BaseException) -> bool:
    """Return whether the policy raised it, not what stops the process, its task or its greenlet."""
    kind = type(error)
    stops = isinstance(error, KeyboardInterrupt | GeneratorExit)
    return not stops and (kind.__module__, kind.__name__) not in _STOPS


def broken(group: str, name: str, error: BaseException) -> PolicyError:
    """Say what went wrong in a policy, and in which line, as the traceback is not shown."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})" if frame else ""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return PolicyError(f"{_KINDS[group]} {name!r}: {reason}{where}")


def guarded(group: str, name: str, kind: type[T]) -> Callable[..., T]:
    """Load a function that answers a `kind`; what goes wrong inside it is one PolicyError."""
    place = f"{_KINDS[group]} {name!r}"
    function = find(group, name)
    if not callable(function):
        raise InputError(place, f"is no function, but {type(function).__name__}")

    answered = _told(group, name, function)

    def call(*arguments: object) -> T:
        answer = answered(*arguments)
        if not isinstance(answer, kind):
            raise PolicyError(f"{place}: answers a {type(answer).__name__}, not a {kind.__name__}")
        return answer

    call.__module__ = getattr(function, "__module__", None) or __name__
    return call
