"""The Python client and the client commands of `weft`.

What they know, any outside client can know: they import no role. Start with `api`; the commands are
in `commands_*`, and `lab.cli` puts them together with the offline ones.
"""

from weft.client.api import AsyncClient, Client, RefusedError

__all__ = ["AsyncClient", "Client", "RefusedError"]
