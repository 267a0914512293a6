"""Numbers on the command line are numbers: no option takes nan, and few take infinity."""

import math
from typing import Any

import click


class Finite:
    """Mixed into a type of floats: never nan, and infinity only where `infinite`."""

    infinite = False

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number; raises BadParameter."""
        number: float = super().convert(value, param, ctx)  # type: ignore[misc]
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
            raise click.BadParameter(f"expected a finite number, got {value!r}", ctx, param)
        return number


class _Number(Finite, click.types.FloatParamType):
    pass


class _Range(Finite, click.FloatRange):
    pass


def finite(command: click.Command) -> click.Command:
    """Have every float of a command and of those below it be a number; again changes nothing.

    Infinity is one where the option is infinite by default: a time that never comes.
    """
    for param in command.params:
        kind = param.type
        if isinstance(kind, Finite) or not isinstance(kind, click.types.FloatParamType):
            continue
        number: _Number | _Range = _Number()
        if isinstance(kind, click.FloatRange):
            number = _Range(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)
        number.infinite = isinstance(param.default, float) and math.isinf(param.default)
        param.type = number
    if isinstance(command, click.Group):
        for below in command.commands.values():
            finite(below)
    return command
