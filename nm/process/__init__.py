"""Everything of the Node Manager that touches the world."""
