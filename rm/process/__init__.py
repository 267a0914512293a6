"""Everything of the Resource Manager that touches the world."""
