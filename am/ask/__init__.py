"""Askers: how much to ask for and where to spend it, one policy a file."""
