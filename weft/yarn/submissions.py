"""From YARN's submission context to Weft's open job."""

from typing import Any

from weft.model.job import Job, MasterSpec
from weft.yarn import launches, translate

# YARN's clients keep these limits, too.
TAGS_MAX, TAG_MAX, TYPE_MAX = 100, 100, 20
ATTEMPTS_MAX = 255
PRIORITY_MAX = 2**31 - 1


def job_of(
    context: Any, user: str, names: tuple[str, ...], environment: tuple[tuple[str, str], ...]
) -> Job:
    """Return the job that a submission means; raises InputError for what no job file could hold.

    Free texts (name, type, tags) are shown as far as they can be; a queue and a label must be
    names as they stand. `environment` is what the master's launcher must know.
    """
    size, label = context.resource, context.node_label_expression.strip()
    # newer clients say the master's size here, and only here with labels
    for asked in context.master_requests:
        if asked.resource_name in ("*", "") and asked.HasField("capability"):
            size = asked.capability
            label = asked.node_label_expression.strip() or label
    managed = not context.unmanaged
    tags = (translate.shown(tag, TAG_MAX) for tag in context.tags[:TAGS_MAX])
    return Job(
        name=translate.shown(context.name) or "N/A",
        stages=(),
        queue=context.queue or "default",
        user=user,
        # YARN's clients and Weft's alike: larger goes first between applications
        priority=min(PRIORITY_MAX, max(0, context.priority.priority)),
        kind=translate.shown(context.type, TYPE_MAX) or "YARN",
        tags=tuple(dict.fromkeys(tag for tag in tags if tag)),
        master=MasterSpec(
            demand=translate.demand(size, names) if managed else {},
            command=launches.COMMAND if managed else (),
            environment=environment if managed else (),
            label=label,
            # nobody starts an unmanaged master again
            max_attempts=max(0, min(ATTEMPTS_MAX, context.max_attempts)) if managed else 1,
        ),
    )
