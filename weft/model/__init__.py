"""What is scheduled and on what: ids, resources, jobs, DAGs, clusters and plans.

Pure, and the lowest floor: it imports nothing else of Weft. Start with `job` (what a user submits),
`dag` (the same as arrays) and `cluster` (nodes and queues); `jobfile` reads and writes the file
format, whose errors (`errors`) say what is wrong and where.
"""
