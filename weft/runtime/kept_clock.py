"""The clock that a Resource Manager's state was begun with: by another one its times would move.

It is kept beside the state (`clock` in a folder, `PREFIX/clock` in etcd) as JSON. Whoever starts a
cluster on a state that is there goes by it.
"""

import contextlib
import json
import math
from pathlib import Path
from typing import NamedTuple

from weft.model.errors import InputError, WeftError
from weft.runtime.kept_file import read_kept

CLOCK = "clock"


class KeptClock(NamedTuple):
    """`epoch_s` is unix time in s; `time_scale` is as in `weft.runtime.clock.Clock`."""

    epoch_s: float
    time_scale: float

    @property
    def text(self) -> str:
        """Return what is written."""
        return json.dumps(self._asdict())

    def check(self, wanted: "KeptClock", where: object) -> None:
        """Raise InputError, naming the flag, where the state at `where` has another clock."""
        for flag, kept, given in zip(("--epoch-s", "--time-scale"), self, wanted, strict=True):
            if kept != given:
                raise InputError(
                    flag,
                    f"the state in {where} was begun with {kept!r}, not {given!r}: the times of "
                    f"its applications would move. Go on with {flag} {kept!r}, or use another "
                    "place for the state",
                )


def clock_of(text: str, where: object) -> KeptClock:
    """Read a kept clock; raises WeftError where it was damaged."""
    with contextlib.suppress(ValueError, TypeError):
        found = KeptClock(**json.loads(text))
        if math.isfinite(found.epoch_s) and 0 < found.time_scale < math.inf:
            return found
    raise WeftError(
        f"{where} holds {text!r:.60}, which is no clock: the file was damaged. Write it back as "
        f"{KeptClock(0.0, 1.0).text}"
    )


def clock_in(folder: Path) -> KeptClock | None:
    """Return the clock that is kept in a state folder; None: none is yet, or of long ago."""
    data = read_kept(folder / CLOCK)
    return None if data is None else clock_of(data.decode("ascii", "replace"), folder / CLOCK)
