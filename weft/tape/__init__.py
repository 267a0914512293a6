"""Tapes: every event that a process's cores handled, in few bytes, so that it can be replayed."""
