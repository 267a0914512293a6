"""Studies: grids of runs, trials over seeds, and the questions that they answer.

`grid` runs a grid of simulations, resumable; `trials` gives means with intervals, paired by seed.
Figures of papers are made by `lab.papers` alone.
"""
