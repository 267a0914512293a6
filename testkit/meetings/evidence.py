"""What is known of a run from outside: facts and messages in the order of time, and how jobs ended.

Nothing here comes from a core's books, but for one thing that no fact tells: which nodes are kept
for whom (`Kept`), as clients are told.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft.model.cluster import ClusterSpec
from weft.model.ids import AppId, NodeId
from weft.model.job import Job
from weft.protocol.facts import Closed, Placed


class Kept(NamedTuple):
    """From now on these nodes are kept, and no others: each for an ask of an application.

    It is 0 where a gang or a master has it, or what was preempted for an ask.
    """

    nodes: Mapping[NodeId, AppId]


class Ended(NamedTuple):
    """How a job ended, or where it was when the run did.

    `app` is 0 where the job was never accepted.
    """

    job: Job
    app: AppId
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
    """One run. `events` are facts, messages to the manager, and `Kept`, each with its time, s.

    After `patience_s` a node may be kept for an ask that starves. `intra_queue` is whether priority
    preempts within a queue, `overbooked` are the resources that the matcher may promise more than
    once, and `numbers` are those of the jobs in the results. A run that ended by itself had nothing
    left to happen, or said so; any other ended at a limit of time.
    """

    cluster: ClusterSpec
    matcher: str
    pace: str
    heartbeat_s: float
    patience_s: float
    events: Sequence[tuple[float, object]]
    jobs: Sequence[Ended]
    starts: Sequence[Start]
    intra_queue: bool = False
    overbooked: tuple[str, ...] = ()
    overbook_limit: float = 1.25
    numbers: Sequence[int] = ()
    ended_by_itself: bool = True

    def lifetimes_s(self) -> list[float]:
        """Return how long containers were held, the shortest first: one may run many tasks."""
        began = {e.container: now for now, e in self.events if isinstance(e, Placed)}
        ended = ((now, e.container) for now, e in self.events if isinstance(e, Closed))
        return sorted(now - began[container] for now, container in ended if container in began)
