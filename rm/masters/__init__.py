"""What application masters say, and what silence means."""
