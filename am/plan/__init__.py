"""Planners: one schedule constructor a file."""
