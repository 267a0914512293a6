"""The Resource Manager: matches tasks to machines online."""
