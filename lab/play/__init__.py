"""`weft play`: the pages of a cluster over runs that have ended."""
