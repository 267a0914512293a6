"""The offline commands of `weft`, found by name by `weft.client.cli`."""
