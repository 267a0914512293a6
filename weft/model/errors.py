"""Errors that a user can act on: one clear line that says what is wrong and where."""

_MESSAGE_CHARS_MAX = 400
# It leaves room for the problem behind a long path.
_PLACE_CHARS_MAX = 250


class WeftError(Exception):
    """A failure with a message for people; the command line prints it and exits with 1."""


class InputError(WeftError):
    """Bad input: the message names the place (`stages[2].demand.vcores: ...`); exit code 2."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        where = place if len(place) <= _PLACE_CHARS_MAX else f"{place[: _PLACE_CHARS_MAX - 4]} ..."
        super().__init__(_one_line(f"{where}: {problem}" if place else problem))

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str]]:
        """Return what it is made of again by the process that had another one do the work."""
        return InputError, (self.place, self.problem)


def _one_line(text: str) -> str:
    """Return a short printable line: quotes of a file's content never flood the screen."""
    short = text if len(text) <= _MESSAGE_CHARS_MAX else f"{text[: _MESSAGE_CHARS_MAX - 4]} ..."
    return " ".join("".join(c if c.isprintable() else " " for c in short).split())


class InvariantError(WeftError):
    """A core's books contradict themselves: raised by `check()`, always a bug of Weft."""


class PolicyError(Exception):
    """A policy of another package broke; a simulation ends with it, a live master plans by itself.

    It is no `WeftError`: those are answers, such as that a task fits on no machine.
    """
