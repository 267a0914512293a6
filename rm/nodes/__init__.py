"""What node managers say, and what silence means."""
