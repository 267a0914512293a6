"""Benchmarks: `weft bench WHAT`, `make bench-check`, and the figures of peers."""
