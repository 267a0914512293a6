"""The `weft` command: commands are imported when they are called, so that a start is cheap."""

import sys
from importlib import import_module

import click

from weft.errors import InputError, WeftError

# command -> module that holds it in its list `commands`
COMMANDS: dict[str, str] = {
    "demo": "weft.client.commands_local",
    "up": "weft.client.commands_local",
    "submit": "weft.client.commands_apps",
    "kill": "weft.client.commands_apps",
    "move": "weft.client.commands_apps",
    "priority": "weft.client.commands_apps",
    "apps": "weft.client.commands_apps",
    "app": "weft.client.commands_apps",
    "explain": "weft.client.commands_apps",
    "logs": "weft.client.commands_apps",
    "nodes": "weft.client.commands_cluster",
    "queues": "weft.client.commands_cluster",
    "top": "weft.client.commands_cluster",
    "events": "weft.client.commands_cluster",
    "plan": "lab.commands_plan",
    "bounds": "lab.commands_plan",
    "validate": "lab.commands_plan",
    "import": "weft.client.commands_workloads",
    "generate": "weft.client.commands_workloads",
    "simulate": "lab.commands_sim",
    "compare": "lab.commands_sim",
    "bench": "lab.commands_bench",
}


class LazyGroup(click.Group):
    """Finds a command by name and imports only its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the table above."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        found: list[click.Command] = import_module(COMMANDS[cmd_name]).commands
        return next((command for command in found if command.name == cmd_name), None)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="weft")
def weft() -> None:
    """Weft: a resource manager in the style of YARN for jobs made of dependent tasks."""


def main() -> None:
    """Run the command; one clear line on stderr: exit 2 for bad input, 1 for a failure."""
    try:
        code = weft.main(standalone_mode=False)
    except InputError as error:
        _fail(str(error), 2)
    except WeftError as error:
        _fail(str(error), 1)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message(), 1)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(text: str, code: int) -> None:
    click.echo(f"weft: {' '.join(text.split())}", err=True)
    sys.exit(code)
