"""The offline commands of `weft`: plan, simulate, replay, predict, study, bench and their kin.

One file a command; `lab.cli` has the table of all commands and imports a file when it is called.
"""
