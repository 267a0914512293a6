"""What the Resource Manager knows, and the life cycles of what it knows of."""
