"""What the terms of each matcher mean, as the pages say it (`weft/web/static/terms.js`)."""

# Of `used of QUEUE`, a term for each queue on the way.
USED = "of what it is guaranteed: least goes first, before all that is said of jobs"

TERMS = {
    "perf": "the score that decides: pri × packing (or overbook) − work left",
    "pri": "preferred order: the place of the stage in its job's plan, 1 is first",
    "pack": "how well the demand fits what is free",
    "overbook": "what it gains by starting on a full node",
    "work": "of the job, times its weight: less goes first",
    "deficit": "what its group is owed by fairness",
    "eta": "weighs remaining work against packing; it is in work left already",
    "alignment": "demand · what is free (Tetris)",
    "dominant_share": "what the job holds of its scarcest resource: least goes first",
    "containers": "containers: fewest goes first",
    "path_s": "seconds of its longest remaining path: shortest goes first",
    "mix": "of remaining work and share: least goes first",
    "priority": "of the application: largest goes first",
    "submission": "its number: smallest goes first",
    "place": "in the line",
}
