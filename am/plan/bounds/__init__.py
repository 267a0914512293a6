"""Lower bounds of a job's makespan, and the structure that they are read from."""
