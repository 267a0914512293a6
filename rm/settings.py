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
    heartbeat_s: float = 1.0  # of nodes
    master_heartbeat_s: float = 1.0
    node_expiry_s: float = 600.0  # a node silent for so long is LOST
    master_expiry_s: float = 600.0  # a master silent for so long has failed
    resend_after_s: float = 3.0  # what is not acknowledged for so long is sent again
    takeover: bool = True  # what a lost attempt left running goes on under the next one
    takeover_wait_s: float = 3.0  # a new attempt waits so long for the old one's containers to end
    return_wait_s: float = 10.0  # ... and after the manager's start, for nodes that may bring some
    max_attempts: int = 2  # of an application
    node_ends_max: int = 4  # masters of an application that end with their nodes; 0: any number
    node_ends_within_s: float = 3600.0  # of their start; later their nodes ended by themselves
    master_avoids_max: float = 0.8  # part of the nodes that a master may avoid for past failures
    master_demand: Mapping[str, float] = field(
        default_factory=lambda: {"vcores": 0.1, "memory_mb": 256.0}
    )  # names that the cluster does not have are left out
    master_share_max: float = 0.5  # dominant share of the cluster that masters may hold together
    reserve_after_s: float = 30.0  # who starves so long, or a mean task time, gets a node kept
    gang_nodes_max: float = (
        0.5  # part of the nodes that may be kept at a time for gangs to start on
    )
    preemption: bool = False  # containers are taken back for queues below their guarantee
    preemption_intra_queue: bool = False  # and inside a queue for applications of higher priority
    preemption_grace_s: float = 15.0  # from the word to its master until a container is stopped
    preemption_interval_s: float = 1.0  # between two rounds
    preemption_natural: float = 0.2  # part of what an ask lacks that one round goes for
    preemption_round_max: float = 0.1  # part of the cluster that one round may newly choose
    preemption_dead_zone: float = 0.1  # over its guarantee, what a queue may hold without losing it
    min_demand: Mapping[str, float] = field(
        default_factory=lambda: {"vcores": 0.001, "memory_mb": 1.0}
    )  # what a container that asks for nothing is booked with (YARN's minimum allocation)
    min_vcores: float = 0.0  # the least that a container is booked with, whatever it asks for
    min_memory_mb: float = 0.0  # (YARN's minimum allocation); 0, as papers' models have it: none
    increment_vcores: float = 0.0  # in steps of which more is booked; 0: as asked
    increment_memory_mb: float = 0.0
    node_containers_max: int = 10_000  # of one node at a time, divided among those who ask
    round_grants_max: int = 5_000  # at one heartbeat, or of one pass over all nodes
    queue_apps_max: int = 0  # applications of a leaf queue that have not ended; 0: any number
    user_apps_max: int = 0  # those of a user in a leaf queue; 0: any number
    gone_nodes_max: int = 1000  # nodes that are LOST or left and are kept for reports
    completed_apps_max: int = 10_000  # ended applications kept for reports
    buggify: Callable[[str], bool] | None = None  # rare paths on purpose (`weft.protocol.buggify`)
    lossless: bool = False  # links lose and delay nothing, so nothing is acknowledged
    recovery: bool = True  # write what a restarted manager needs
