"""Which member gets a job: a pure function of what the members report, and of the job."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from weft.model.job import Job


@dataclass(slots=True)
class Standing:
    """What is known of a member.

    `outstanding_s` is how long its work not done keeps it (`ClusterMetrics`), with that of the jobs
    that it was sent since it reported. `capacity` is in absolute units, by resource; `labels` are
    those of its nodes in service. A member that is not `up` did not answer when it was asked last.
    """

    up: bool = False
    outstanding_s: float = 0.0
    capacity: Mapping[str, float] | None = None
    labels: Collection[str] = ()


def least_outstanding(standings: Sequence[Standing], job: Job) -> list[int]:
    """Return the positions of members in the order in which they are to be asked to take a job.

    First those that have the nodes for it, by when they would be done with the job and all that
    they have; ties go to the first. What does not answer is not asked.
    """
    labels = {stage.label for stage in job.stages if stage.label}

    def done_s(at: int) -> tuple[bool, float, int]:
        standing = standings[at]
        lacks = not labels <= set(standing.labels)
        return lacks, standing.outstanding_s + work_s(job, standing), at

    return sorted((at for at, one in enumerate(standings) if one.up), key=done_s)


def work_s(job: Job, standing: Standing) -> float:
    """Return how long a job would keep a member, the sum over the resources, s.

    Infinite where the member has no node.
    """
    capacity = standing.capacity or {}
    return job.work_s(capacity) if any(capacity.values()) else inf
