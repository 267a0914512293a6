"""How much memory a job takes where it is kept: an estimate by what it is made of.

Of a manager and a host of masters, whichever takes more, measured with jobs that have much of one
kind. A job of a hundred bytes may have ten million tasks, so the size of its text says little.
"""

from collections.abc import Iterable

from weft.model.job import Job, Preference

# Of each stage, edge, pair of tasks, override and word or number beside them, bytes.
STAGE_BYTES, EDGE_BYTES, PAIR_BYTES, OVERRIDE_BYTES, WORD_BYTES = 3_000, 400, 50, 300, 60
# A task takes so much from when its master has planned it to its application's end.
TASK_BYTES = 100
# What one ask, request or report of a recorded attempt takes.
_RECORDED_BYTES = 300


def job_bytes(job: Job) -> int:
    """Return what a job itself takes, for as long as it is kept."""
    total = _words((job.name, job.queue, job.user, job.history_key, *job.resources, *job.tags))
    for stage in job.stages:
        total += STAGE_BYTES + len(stage.name) + _words(stage.command) + _preference(stage.prefer)
        for edge in stage.parents:
            total += EDGE_BYTES + PAIR_BYTES * len(edge.pairs)
        if isinstance(stage.actual_duration_s, tuple):
            total += WORD_BYTES * len(stage.actual_duration_s)
        for own in stage.overrides:
            total += OVERRIDE_BYTES + _words(own.command or ())
            if own.prefer is not None:
                total += _preference(own.prefer)
    if (spec := job.master) is not None:
        total += _words(spec.command)
        total += sum(_words(pair) for pair in spec.environment)
        if (recorded := spec.recorded) is not None:
            rows = len(recorded.requests) + len(recorded.asks) + len(recorded.told)
            total += _RECORDED_BYTES * rows + WORD_BYTES * recorded.containers
    return total


def live_bytes(job: Job, own: int) -> int:
    """Return what an application takes that has not ended; `own` is its `job_bytes`."""
    return own + TASK_BYTES * job.task_count


def _words(words: Iterable[str]) -> int:
    return sum(WORD_BYTES + len(word) for word in words)


def _preference(prefer: Preference) -> int:
    return _words(prefer.nodes) + _words(prefer.racks) if prefer.nodes or prefer.racks else 0
