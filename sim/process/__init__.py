"""Everything of the simulator that touches the world or draws a chance that it was not given."""
