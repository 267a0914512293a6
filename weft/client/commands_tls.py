"""The command that makes certificates."""

from pathlib import Path

import click

from weft.access import URI
from weft.client import show
from weft.client.commands_apps import json_option


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME[,OTHER...]",
    help="A node's host: its name, then other names and addresses it is dialled by (may be repeated"
         " as those below).",
)  # fmt: skip
@click.option("--manager", "managers", multiple=True, metavar="NAME[,OTHER...]",
              help="A host of the Resource Manager, AM host and pages.")  # fmt: skip
@click.option("--emulator", "emulators", multiple=True, metavar="NAME[,OTHER...]",
              help="A host of emulated nodes, whatever their names.")  # fmt: skip
@click.option("--client", "clients", multiple=True, metavar="USER", help="A user.")
@click.option("--admin", "admins", multiple=True, metavar="USER",
              help="An operator, who may do everything.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, 3650), default=397, show_default=True,
              help="For how long new certificates of hosts last.")  # fmt: skip
@json_option
def certificates(
    folder: Path,
    hosts: tuple[str, ...],
    managers: tuple[str, ...],
    emulators: tuple[str, ...],
    clients: tuple[str, ...],
    admins: tuple[str, ...],
    days: int,
    as_json: bool,
) -> None:
    """Make an authority in FOLDER, unless it is there, and a certificate for each host and user.

    A process takes three files: --tls-ca FOLDER/ca.pem --tls-cert FOLDER/NAME.pem
    --tls-key FOLDER/NAME-key.pem. Keep ca-key.pem to yourself. What still fits and lasts is kept,
    so the command may be run again, with more hosts or to renew.
    """
    from weft.client.certificates import make

    others = {"manager": managers, "emulator": emulators, "client": clients, "admin": admins}
    made = make(folder, hosts, days, others)
    if as_json:
        show.echo_json(
            [
                {
                    "name": one.name,
                    "cert": str(one.certificate),
                    "key": str(one.key),
                    "names": list(one.names),
                    "roles": list(one.roles),
                    "fresh": one.fresh,
                }
                for one in made
            ]
        )
        return
    click.echo(f"authority {folder / 'ca.pem'}")
    for one in made:
        word = "made" if one.fresh else "kept"
        roles = ", ".join(role.removeprefix(URI) for role in one.roles)
        click.echo(f"{word} {one.certificate} for {', '.join(one.names)}: {roles}")


commands: list[click.Command] = [certificates]
