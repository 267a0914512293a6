"""The Python client and the `weft` command."""

from weft.client.api import AsyncClient, Client, RefusedError

__all__ = ["AsyncClient", "Client", "RefusedError"]
