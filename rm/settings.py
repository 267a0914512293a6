"""What a cluster's owner may set about the Resource Manager."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Times in s on the cluster's clock.

    `prompt` is the pace (ARCHITECTURE, Messages): match as soon as there is something to match and
    push the answers; otherwise everything moves on heartbeats, as in YARN.
    """

    prompt: bool = False
    # A node sends a heartbeat so often.
    heartbeat_s: float = 1.0
    # A master sends a heartbeat so often.
    master_heartbeat_s: float = 1.0
    # A node that is silent for so long is LOST.
    node_expiry_s: float = 600.0
    # A master that is silent for so long has failed.
    master_expiry_s: float = 600.0
    # A message that is not acknowledged for so long is sent again.
    resend_after_s: float = 3.0
    # Containers that a lost attempt left running continue under the next one.
    takeover: bool = True
    # An application has at most so many attempts.
    max_attempts: int = 2
    # An application fails when so many of its masters ended with their nodes; 0 is any number.
    node_ends_max: int = 4
    # The container of a master of Weft's own holds this; names that the cluster does not have are
    # left out.
    master_demand: Mapping[str, float] = field(
        default_factory=lambda: {"vcores": 0.1, "memory_mb": 256.0}
    )
    # All masters together hold at most this dominant share of the cluster.
    master_share_max: float = 0.5
    # An ask that starves for so long, or for a mean task time if that is less, gets a node
    # reserved.
    reserve_after_s: float = 30.0
    # At most this part of the nodes is kept at a time for gangs to start on.
    gang_nodes_max: float = 0.5
    # Containers are taken back for queues below their guarantee.
    preemption: bool = False
    # Containers are also taken back inside a queue, for applications of higher priority.
    preemption_intra_queue: bool = False
    # A container is stopped so long after its master was told of the preemption.
    preemption_grace_s: float = 15.0
    # Two rounds of preemption are so far apart.
    preemption_interval_s: float = 1.0
    # One round goes for this part of what an ask lacks.
    preemption_natural: float = 0.2
    # One round newly chooses at most this part of the cluster.
    preemption_round_max: float = 0.1
    # A queue may hold this part more than its guarantee without losing it.
    preemption_dead_zone: float = 0.1
    # A container that asks for nothing is booked with this (YARN's minimum allocation).
    min_demand: Mapping[str, float] = field(
        default_factory=lambda: {"vcores": 0.001, "memory_mb": 1.0}
    )
    # A container is booked with at least so much, whatever it asks for (YARN's minimum allocation);
    # 0, as in the papers' models, is no minimum.
    min_vcores: float = 0.0
    # A container is booked with at least so much, whatever it asks for (YARN's minimum allocation);
    # 0, as in the papers' models, is no minimum.
    min_memory_mb: float = 0.0
    # What is booked is rounded up to a multiple of this (YARN's increment allocation); 0 books what
    # was asked for.
    increment_vcores: float = 0.0
    # What is booked is rounded up to a multiple of this (YARN's increment allocation); 0 books what
    # was asked for.
    increment_memory_mb: float = 0.0
    # A node runs at most so many containers at a time, divided among the applications that ask.
    node_containers_max: int = 10_000
    # A leaf queue has at most so many applications that have not ended; 0 is any number.
    queue_apps_max: int = 0
    # Jobs of applications that have not ended take at most so many MB (`weft.model.job_size`) in
    # all; 0 is any number.
    jobs_mb_max: float = 0.0
    # At most so many ended applications are kept for reports.
    completed_apps_max: int = 10_000
    # Of so many members of a cluster this is the one that gives applications the numbers that leave
    # the remainder `member`, so a number names its member.
    member: int = 1
    # The cluster has so many members.
    members: int = 1
    # The fault search says here where rare paths are taken on purpose (`weft.protocol.buggify`).
    buggify: Callable[[str], bool] | None = None
    # Links lose and delay nothing, so nothing is acknowledged.
    lossless: bool = False
    # A simulation of what comes next has all nodes back at once.
    nodes_return: bool = True
    # What a restarted manager needs is written.
    recovery: bool = True
