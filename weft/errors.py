"""Errors that a user can act on: one clear line that says what is wrong and where."""


class WeftError(Exception):
    """A failure with a message for people; the command line prints it and exits with 1."""


class InputError(WeftError):
    """Bad input: the message names the place (`stages[2].demand.vcores: ...`); exit code 2."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}" if place else problem)


class InvariantError(WeftError):
    """A core's books contradict themselves: raised by `check()`, always a bug of Weft."""
