"""The `weft` command: commands are imported when they are called, so that a start is cheap."""

import difflib
import io
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from weft.client.interrupts import Interrupted, renew_lost_interrupts
from weft.client.numeric_options import finite
from weft.client.text import safe
from weft.model.errors import InputError, PolicyError, WeftError

# What `--version` prints; docs/versions.md has the whole of it.
ABOUT = f"""%(prog)s, version %(version)s (Python {platform.python_version()})
Stable through 1.x: gRPC for clients (client.proto, matcher.proto), job and cluster files, commands
with their options, exit codes and --json, metrics, and the state of a Resource Manager. A tape is
replayed by the version that wrote it. See docs/versions.md."""
# A shell gives this exit code to a command that SIGPIPE ended.
PIPE_CLOSED = 141
# By section of the help: command -> (module that holds it in its list `commands`, its line).
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run a cluster here": {
        "demo": (
            "weft.client.commands_local",
            "Run the sample jobs on a local cluster and print their table.",
        ),
        "up": ("weft.client.commands_local", "Start a local cluster and keep it."),
        "down": ("weft.client.commands_local", "End the cluster that `weft up --detach` started."),
    },
    "Work with a cluster": {
        "submit": ("weft.client.commands_apps", "Submit job files."),
        "apps": ("weft.client.commands_apps", "List applications."),
        "app": ("weft.client.commands_apps", "Show one application with its stages."),
        "explain": (
            "weft.client.commands_apps",
            "Say why each pending stage of an application is pending.",
        ),
        "logs": ("weft.client.commands_apps", "Print what the commands of an application wrote."),
        "kill": ("weft.client.commands_apps", "Kill applications."),
        "move": ("weft.client.commands_apps", "Move an application to another leaf queue."),
        "priority": ("weft.client.commands_apps", "Change an application's priority."),
        "predict": (
            "lab.commands.predict",
            "Say when waiting and running jobs will start and end.",
        ),
        "queues": ("weft.client.commands_cluster", "List queues with their shares."),
        "nodes": ("weft.client.commands_cluster", "List nodes; take them out of service."),
        "managers": ("weft.client.commands_cluster", "List Resource Managers: who leads."),
        "top": ("weft.client.commands_cluster", "Watch the cluster."),
        "events": ("weft.client.commands_cluster", "Follow the cluster's facts as they happen."),
        "login": ("weft.client.commands_tls", "Write a token for pages and REST into a file."),
    },
    "Plan and simulate": {
        "plan": ("lab.commands.plan", "Build a job's schedule offline."),
        "bounds": ("lab.commands.plan", "Print the lower bounds of a job's makespan."),
        "validate": ("lab.commands.plan", "Check a plan against its job and cluster."),
        "simulate": ("lab.commands.simulate", "Run a workload in virtual time."),
        "compare": ("lab.commands.simulate", "Set simulated runs side by side."),
        "study": ("lab.commands.study", "Run a grid of simulations, resumable."),
        "play": (
            "lab.commands.play",
            "Watch a run that is over, or two side by side, decision by decision.",
        ),
        "generate": ("weft.client.commands_workloads", "Make a synthetic workload."),
        "import": ("weft.client.commands_workloads", "Turn public workload files into job files."),
        "export": ("weft.client.commands_workloads", "Turn a workload into SWF or WfFormat."),
    },
    "Recorded runs": {
        "replay": (
            "lab.commands.replay",
            "Feed tapes of a live run to the schedulers anew: do they decide the same?",
        ),
        "whatif": (
            "lab.commands.replay",
            "Simulate a recorded run's jobs, or its rest, under another scheduler or cluster.",
        ),
    },
    "Set up": {
        "certificates": (
            "weft.client.commands_tls",
            "Make an authority and certificates for the hosts of a cluster.",
        ),
        "journal": (
            "lab.commands.journal",
            "Check, back up or restore a Resource Manager's state.",
        ),
        "import-yarn": (
            "weft.client.commands_yarn",
            "Turn a YARN configuration into a cluster file.",
        ),
        "completion": ("weft.client.commands_shell", "Print what makes a shell complete commands."),
    },
    "Research": {
        "paper": (
            "lab.commands.paper",
            "Make a paper's figures and tables beside what Weft finds.",
        ),
        "analyse": (
            "lab.commands.analyse",
            "Make the figures of a thesis from a production trace.",
        ),
        "bench": ("lab.commands.bench", "Measure match, plan, sim, live or codec."),
        "fuzz": ("lab.commands.fuzz", "Search for faults that break a promise, in virtual time."),
    },
}
COMMANDS = {name: row for section in SECTIONS.values() for name, row in section.items()}


class LazyGroup(click.Group):
    """Finds a command by name and imports only its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command, in the order of the table above."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        found: list[click.Command] = import_module(COMMANDS[cmd_name][0]).commands
        return next((finite(command) for command in found if command.name == cmd_name), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is refused with those that look like it."""
        like = difflib.get_close_matches(args[0], COMMANDS, cutoff=0.5)
        if args[0] not in COMMANDS and like and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(like)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="weft-rm", message=ABOUT)
@click.pass_context
def weft(ctx: click.Context) -> None:
    """Weft: a resource manager in the style of YARN for jobs made of dependent tasks."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class _StandardOutput(io.FileIO):
    """Standard output, named by its errors; what is written after one is dropped."""

    _over = False

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        if self._over or not size:
            # The buffered writer must see success as the process ends; an empty write only
            # asks what it takes.
            return size
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._over = True
            raise OSError(error.errno, error.strerror, "standard output") from None


def _name_output() -> None:
    """Have errors of standard output name it, where this process has one of its own."""
    own = sys.stdout
    if not isinstance(own, io.TextIOWrapper) or own is not sys.__stdout__:
        return
    raw = _StandardOutput(own.fileno(), "wb", closefd=False)
    kept = isinstance(own.buffer, io.BufferedWriter)
    sys.stdout = io.TextIOWrapper(
        # `python -u` leaves the buffer out.
        io.BufferedWriter(raw) if kept else raw,
        encoding=own.encoding,
        errors=own.errors,
        line_buffering=own.line_buffering,
        write_through=own.write_through,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; one clear line on stderr: exit 2 for bad input, 1 for a failure.

    `arguments` are those of this process, unless they are given.
    """
    _name_output()
    renew_lost_interrupts()
    output = sys.stdout
    try:
        # A completing shell asks with this variable in the environment.
        code = weft.main(
            arguments,
            prog_name="weft",
            standalone_mode=False,
            complete_var="_WEFT_COMPLETE",
            color=False if _is_plain(os.environ) else None,
        )
    except InputError as error:
        _fail(str(error), 2)
    except Interrupted as error:
        _fail(str(error), 130)
    except (WeftError, PolicyError) as error:
        _fail(_with_end(str(error)), 1)
    except click.UsageError as error:
        _fail(_usage(error, sys.argv[1:] if arguments is None else arguments), 2)
    except click.ClickException as error:
        _fail(error.format_message(), 1)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:
        sys.exit(PIPE_CLOSED)
    except SystemExit as error:
        # At a closed pipe, click replaces the output and exits with 1.
        sys.exit(error.code if sys.stdout is output else PIPE_CLOSED)
    except (UnicodeError, RecursionError, MemoryError) as error:
        _fail(f"{type(error).__name__}: {error}", 1)
    except OSError as error:
        _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 1)
    sys.exit(code if isinstance(code, int) else 0)


def _with_end(text: str) -> str:
    """Add how a cluster that was detached has ended, where nobody answers at its address.

    Where nothing is known of one there, say what starts or names another.
    """
    if "Resource Manager at" not in text:
        return text
    from weft.client.detached import told_of_end

    ended = told_of_end(text)
    if not ended and text.endswith("connection refused"):
        ended = "weft up starts one, --rm or WEFT_RM_ADDRESS names another"
    return f"{text}; {ended}" if ended else text


def _is_plain(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal or its user wants no colours (https://no-color.org)."""
    return bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"


def _usage(error: click.UsageError, words: Sequence[str]) -> str:
    """Return one line: what is wrong, and which command's help tells more."""
    # An option without its value is found before its command has a context.
    known = {name for section in SECTIONS.values() for name in section}
    path = " ".join(["weft", *(word for word in words[:1] if word in known)])
    if error.ctx is not None:
        path = error.ctx.command_path
    return f"{error.format_message()} ({path} --help)"


def _fail(text: str, code: int) -> None:
    click.echo(f"weft: {safe(' '.join(text.split()))}", err=True)
    sys.exit(code)
