"""One page a paper: every figure and table beside what Weft finds, made by `weft paper NAME`."""
