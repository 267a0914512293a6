"""The Python client and the `weft` command."""
