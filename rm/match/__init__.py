"""Matchers: one policy a file."""
