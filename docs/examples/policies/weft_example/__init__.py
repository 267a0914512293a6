"""Policies for Weft that live in a package of their own."""
