"""Times of tapes on the command line: on the cluster's clock, or from the tapes' beginning."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from weft.model.errors import InputError
from weft.runtime.tapefile import TapeFile
from weft.tape.rows import Handled


@dataclass(frozen=True, slots=True)
class Since:
    """A time from the first event of the tapes on, s."""

    later_s: float


# On the cluster's clock, s, or from the beginning.
Moment = float | Since


# Older releases of click, which are taken as well, have no such generic class.
class TapeTime(click.ParamType):  # type: ignore[type-arg]
    """`84.2` is on the cluster's clock, which may be unix time; `+84.2` from the beginning."""

    name = "T"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        """Read a time; raises BadParameter."""
        if isinstance(value, (float, Since)):
            return value
        try:
            number = float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a valid float.", ctx, param) from None
        if not math.isfinite(number):
            raise click.BadParameter(f"expected a finite number, got {value!r}", ctx, param)
        return Since(number) if str(value).startswith("+") else number


def on_clock(at: Moment, tapes: Sequence[TapeFile]) -> float:
    """Return a time on the clock of some tapes, s; raises InputError where none has an event."""
    if not isinstance(at, Since):
        return at
    firsts = [
        row.now
        for tape in tapes
        for row in islice((one for one in tape.rows() if isinstance(one, Handled)), 1)
    ]
    if not firsts:
        raise InputError("TAPE", "holds no event to count from")
    return min(firsts) + at.later_s
