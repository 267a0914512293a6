"""What a Ctrl-C leaves behind is said: jobs go on without the command that waited for them."""

from collections.abc import Sequence

from weft.model.errors import WeftError

SHOWN = 5


class Interrupted(WeftError):
    """A Ctrl-C, and what is left of the work; exit code 130."""

    def __init__(self, left: str) -> None:
        super().__init__(f"interrupted: {left}")


class InterruptedWait(Interrupted):
    """Somebody stopped waiting for these applications."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        some = " ".join(ids[:SHOWN]) + (f" ... {ids[-1]}" if len(ids) > SHOWN else "")
        goes = "goes on; it ends" if len(ids) == 1 else "go on; they end"
        super().__init__(f"{some} {goes} with: weft kill {some.split(' ... ')[0]}")
