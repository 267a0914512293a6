"""Studies: grids of runs, trials over seeds, and the questions that they answer."""
