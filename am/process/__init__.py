"""Everything of the Application Master that touches the world."""
