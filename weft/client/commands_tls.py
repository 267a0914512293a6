"""The commands that make certificates and users' tokens."""

import json
import os
from pathlib import Path
from typing import Any

import click

from weft.client import show
from weft.client.commands_apps import json_option
from weft.model.errors import InputError
from weft.model.extras import require
from weft.model.reading import name_problem
from weft.protocol.access import URI


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME[,OTHER...]",
    help="A node's host: its name, then other names and addresses it is dialled by (may be repeated"
    " as those below).",
)
@click.option(
    "--manager",
    "managers",
    multiple=True,
    metavar="NAME[,OTHER...]",
    help="A host of the Resource Manager, AM host and pages.",
)
@click.option(
    "--emulator",
    "emulators",
    multiple=True,
    metavar="NAME[,OTHER...]",
    help="A host of emulated nodes, whatever their names.",
)
@click.option("--client", "clients", multiple=True, metavar="USER", help="A user.")
@click.option(
    "--admin", "admins", multiple=True, metavar="USER", help="An operator, who may do everything."
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=397,
    show_default=True,
    help="For how long new certificates of hosts last.",
)
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
    require("cryptography", "tls", "a certificate")
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


@click.command()
@click.argument("state", metavar="STATE")
@click.option("--user", default="", metavar="USER", help="Whose token; the user who runs this.")
@click.option("--admin", is_flag=True, help="A token of an operator, who may do everything.")
@click.option(
    "--hours",
    type=click.FloatRange(0, 24 * 5, min_open=True),
    default=12.0,
    show_default=True,
    help="For how long it lasts.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The file, for its owner alone; ~/.config/weft/token.",
)
@click.option("--store-ca", type=click.Path(path_type=Path), help="As of the Resource Manager.")
@click.option("--store-cert", type=click.Path(path_type=Path), help="As of the Resource Manager.")
@click.option("--store-key", type=click.Path(path_type=Path), help="As of the Resource Manager.")
@click.option("--store-user", default="", help="As of the Resource Manager.")
@click.option("--store-password-file", type=click.Path(path_type=Path), help="The same.")
def login(state: str, user: str, admin: bool, hours: float, out: Path | None, **store: Any) -> None:
    """Write a token for pages and REST into a file, on the Resource Manager's host.

    STATE is the manager's --state-dir, or its --store (etcd://...): a user who may read its
    keys may act as anybody. Show the token as `Authorization: Bearer ...`, or as the password that
    a browser asks for.
    """
    import getpass
    import time

    from weft.ha.etcd import SCHEME
    from weft.protocol.access import Role
    from weft.wire.tokens import Keys

    options = {name.removeprefix("store_"): value for name, value in store.items()}
    saved = _shared(state, options) if state.startswith(SCHEME) else _saved(Path(state))
    keys = Keys(time.time(), bytes, saved=saved)
    name = user or getpass.getuser()
    if problem := name_problem(name) or ("/" in name and "must have no /"):
        raise InputError("--user", problem)
    token = keys.user(Role.ADMIN if admin else Role.CLIENT, name, time.time(), hours * 3600)
    place = out or Path.home() / ".config" / "weft" / "token"
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_secret(place, token.encode() + b"\n")
    click.echo(f"{place}: {'operator' if admin else 'user'} {name}, {hours:g} h")


def _saved(state_dir: Path) -> Any:
    """Return the keys in a state folder."""
    from weft.wire.tokens import FILE

    path = state_dir / FILE
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(str(path), "holds no keys") from None


def _shared(store: str, options: dict[str, Any]) -> Any:
    """Return the keys that several Resource Managers share."""
    from weft.ha.etcd import Etcd, joined, settings_of

    settings = settings_of(store, **options)
    etcd = Etcd(settings)
    try:
        found, _ = etcd.get(joined((settings.prefix, "keys")))
        return json.loads(found.value if found is not None else b"")
    except ValueError:
        raise InputError(store, "holds no keys") from None
    finally:
        etcd.close()


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that is its owner's only from its first byte on."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    fresh.replace(path)


commands: list[click.Command] = [certificates, login]
