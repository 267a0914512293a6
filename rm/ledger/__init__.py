"""What is held, asked and free, as columns: the only books of the manager."""
