"""Weft beside the real YARN: the same scenario through both, decision by decision."""
