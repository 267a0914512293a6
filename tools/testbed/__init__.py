"""Four hosts out of namespaces on one machine, and the proof that Weft runs on hosts.

`make testbed` runs it: see docs/bare-metal.md.
"""
