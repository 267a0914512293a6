"""Benchmarks: `weft bench WHAT`, `make bench-check`, and the figures of peers.

A module a question: `match` (a heartbeat), `plan`, `sim` and `live` (tasks a second), `codec`.
"""
