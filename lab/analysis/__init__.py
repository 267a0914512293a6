"""Analysis of traces of production clusters, through Ibis: DuckDB here, a warehouse elsewhere."""
