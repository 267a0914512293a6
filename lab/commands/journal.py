"""`weft journal`: look at a Resource Manager's state, back it up while it runs, and restore it."""

from pathlib import Path

import click

from rm.process.journal_copies import Condition, backup, check, restore
from weft.client.commands_apps import json_option
from weft.client.show import echo_json
from weft.client.tables import say
from weft.client.text import plural

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def journal() -> None:
    """Check, back up or restore a Resource Manager's state (its --state-dir)."""


@journal.command("check")
@click.argument("folder", type=FOLDER)
@json_option
def check_state(folder: Path, as_json: bool) -> None:
    """Say what the state in FOLDER holds, and whether it is sound; exit 1 where it is damaged.

    Nothing is changed, and its manager may run.
    """
    _tell(folder, check(folder), as_json)


@journal.command("backup")
@click.argument("folder", type=FOLDER)
@click.argument("to", type=FOLDER)
@json_option
def backup_state(folder: Path, to: Path, as_json: bool) -> None:
    """Copy the state in FOLDER, whose manager may run, to the new folder TO, and check the copy."""
    _tell(to, backup(folder, to), as_json)


@journal.command("restore")
@click.argument("copy", type=FOLDER)
@click.argument("folder", type=FOLDER)
@json_option
def restore_state(copy: Path, folder: Path, as_json: bool) -> None:
    """Put the backup COPY into FOLDER, which must have no journal.

    The manager that starts there numbers its lives and applications from further on, so that it
    takes nothing from after the backup for its own.
    """
    _tell(folder, restore(copy, folder), as_json)


def _tell(folder: Path, found: Condition, as_json: bool) -> None:
    if as_json:
        echo_json(found._asdict())
        return
    apps = ", ".join(f"{count:,} {state}" for state, count in found.applications.items())
    queues = "queues were set while it ran" if found.queues_set else "queues as its cluster file"
    say(f"{folder}: sound, {plural(found.records, 'record')} in {found.size_bytes:,} bytes")
    say(f"applications: {apps or 'none'}; the newest has number {found.newest_app}")
    say(f"life {found.lives} of the manager; {queues}")
    if found.dropped:
        say(f"left out at the end: {found.dropped}, which no answer named")


commands: list[click.Command] = [journal]
