"""The simulator: the same cores in virtual time."""
