"""The options that choose a scheduler, of every command that starts or simulates one."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from weft.client.completing import presets
from weft.policies.presets import PRESETS

F = TypeVar("F", bound=Callable[..., Any])


def scheduler_options(command: F) -> F:
    """Add `--scheduler`, and `--matcher`, `--planner` and `--asker`, which exchange its parts."""
    for part in ("asker", "planner", "matcher"):
        command = click.option(f"--{part}", default="", help=f"Exchange the preset's {part}.")(
            command
        )
    return click.option(
        "--scheduler",
        default="capacity",
        show_default=True,
        shell_complete=presets,
        help=" ".join(PRESETS),
    )(command)
