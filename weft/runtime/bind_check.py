"""Whether a process may listen where it was told to: beyond loopback only for those it knows."""

import ipaddress

from weft.model.errors import InputError

LOOPBACK = "localhost"


def is_loopback(host: str) -> bool:
    """Return whether an address is this host's own, which nobody else reaches; names are not."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == LOOPBACK or host.endswith(f".{LOOPBACK}")


def check(host: str, *, knows: bool, insecure: bool, how: str) -> bool:
    """Return whether whoever reaches the process is let in; `knows`: it asks who is there.

    Raises InputError for an address beyond loopback, unless it knows or is told to be `insecure`;
    `how` says what makes it know.
    """
    if is_loopback(host) or knows:
        return False
    if not insecure:
        raise InputError(
            "--host",
            f"{host} is reached by others, and nobody is asked who they are: give {how}, or say"
            " --insecure",
        )
    return True
