"""What is known of a run from outside: facts and messages in the order of time, and how jobs ended.

Nothing here comes from a core's books, but for one thing that no fact tells: which nodes are kept
for whom (`Kept`), as clients are told.
"""

from collections.abc import Sequence
from typing import NamedTuple

from weft.model.cluster import ClusterSpec
from weft.model.ids import AppId, NodeId
from weft.model.job import Job


class Kept(NamedTuple):
    """From now on these nodes are kept, and no others."""

    nodes: frozenset[NodeId]


class Ended(NamedTuple):
    """How a job ended, or where it was when the run did."""

    job: Job
    app: AppId  # 0: never accepted
    state: str
    finish_s: float
    diagnostics: str


class Start(NamedTuple):
    """One try of a task, by places: what two runs are compared by."""

    job: int
    stage: int
    task: int
    attempt: int
    node: int
    start_s: float
    end_s: float
    outcome: int


class Evidence(NamedTuple):
    """One run. `events` are facts, messages to the manager, and `Kept`, each with its time, s."""

    cluster: ClusterSpec
    matcher: str
    pace: str
    heartbeat_s: float
    patience_s: float  # after which a node may be kept for who starves
    events: Sequence[tuple[float, object]]
    jobs: Sequence[Ended]
    starts: Sequence[Start]
    intra_queue: bool = False  # whether priority preempts within a queue
    overbooked: tuple[str, ...] = ()  # resources that the matcher may promise more than once
    overbook_limit: float = 1.25
    numbers: Sequence[int] = ()  # of the jobs in the results
    ended_by_itself: bool = True  # and not at a limit of time, with nothing left to happen
