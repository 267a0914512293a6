"""The Application Master: builds its job's schedule and asks for containers."""
