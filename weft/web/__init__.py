"""REST and pages: one more client of the Resource Manager."""
