"""Members of a cluster in virtual time: managers with nodes of their own, and jobs sent to each.

The members meet at the router alone, which decides as the live one does
(`weft.policies.members`): what they report is as old as the report's interval, and a job that comes
meanwhile counts by its estimates. It moves queues' guarantees between members as often as the live
one (`weft.policies.shares`). All write into one recorder, as application numbers, nodes and
containers are of one member each.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from rm.core import ResourceManager
from rm.report.reports import metrics, queue
from sim.client import Client
from sim.cluster import STILL_S, Simulation
from sim.engine import Effects
from sim.faults import NO_FAULTS
from sim.recorder import JobRow, Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec
from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.queues import QueueSpec, digest_of
from weft.policies.members import Standing, least_outstanding, work_s
from weft.policies.shares import SHARES_S, moves, shared, sizes_of, wanted_of
from weft.policies.shares import Member as Share
from weft.protocol.effects import ClientRequested, Started, TimerFired
from weft.protocol.messages import MANAGER
from weft.protocol.requests import ClusterMetrics, QueueReport, SetQueues

# The members report so often, s; `weft.router` asks them as often.
REPORTS_S = 1.0


class RoutedClient(Client):
    """Submits nothing that no router sent it."""

    def handle(self, event: Started | TimerFired, now: float) -> Effects:
        """Submit the job whose number the timer's key is."""
        return [] if isinstance(event, Started) else super().handle(event, now)


class Member(Simulation):
    """One of the members; it knows all jobs, and runs those that it takes."""

    __slots__ = ("queues_set", "taken")

    def __init__(
        self, cluster: ClusterSpec, jobs: Sequence[Job], settings: SimSettings, recorder: Recorder
    ) -> None:
        super().__init__(cluster, jobs, settings, recorder)
        self.taken: list[JobRow] = []
        # So often the router moved guarantees here.
        self.queues_set = 0

    def _make_client(self, jobs: Sequence[Job]) -> Client:
        return RoutedClient(jobs, self.recorder, repeat=False)

    @property
    def is_busy(self) -> bool:
        """Whether a job that it took has not ended, and still can."""
        return not self.stuck and any(row.finish_s < 0 for row in self.taken)

    def take(self, row: JobRow) -> None:
        """Submit a job at its arrival, or now if that is over."""
        self.taken.append(row)
        wait_s = row.job.arrival_s - self.engine.now
        self.engine.set_timer(self._outside, row.number, max(0.0, wait_s))

    def told(self) -> tuple[QueueSpec, QueueReport, ClusterMetrics]:
        """Return what the manager tells of its queues and of what it has."""
        books = self.manager.books
        return books.queues.root, queue(books, 0), metrics(books)

    def set_queues(self, queues: QueueSpec, base: str) -> None:
        """Have the manager take another tree, made from the one that `base` names."""
        self.queues_set += 1
        self.engine.soon(
            self.actors[MANAGER], ClientRequested("shares", SetQueues(queues, base=base))
        )

    def standing(self) -> Standing:
        """Return what the manager reports of itself."""
        told = metrics(self.manager.books)
        return Standing(True, told.outstanding_s, told.capacity, told.labels)


class Members:
    """A cluster of several members, and their router."""

    def __init__(
        self,
        cluster: ClusterSpec,
        jobs: Sequence[Job],
        settings: SimSettings,
        recorder: Recorder,
        count: int,
    ) -> None:
        """Divide the nodes into `count` parts, in their order."""
        nodes = cluster.nodes
        if not 0 < count <= len(nodes):
            raise InputError("--members", f"expected 1 to {len(nodes)}, as many as nodes")
        if settings.faults != NO_FAULTS:
            raise InputError("--members", "does not go with --faults")
        self.recorder = recorder
        self._until_s = settings.until_s
        self.members: list[Member] = []
        for at in range(count):
            part = nodes[len(nodes) * at // count : len(nodes) * (at + 1) // count]
            numbers = {"member": at + 1, "members": count}
            own = replace(settings, manager={**settings.manager, **numbers})
            self.members.append(Member(replace(cluster, nodes=part), jobs, own, recorder))
        self._shares = count > 1 and moves(cluster.queues)
        recorder.on_done = self._stop

    def _stop(self) -> None:
        for member in self.members:
            member.engine.stop()

    @property
    def manager(self) -> ResourceManager:
        """Return the first member's manager; all have the same settings."""
        return self.members[0].manager

    @property
    def stuck(self) -> str:
        """Return why nothing can happen any more; empty: something can."""
        return next((member.stuck for member in self.members if member.stuck), "")

    @property
    def now_s(self) -> float:
        """Return the virtual time of the member that came furthest, s."""
        return max(member.now_s for member in self.members)

    @property
    def events(self) -> int:
        """Return how many events there were in all members."""
        return sum(member.events for member in self.members)

    def run(self) -> Recorder:
        """Drive all members to the end of the last job."""
        coming = deque(sorted(self.recorder.jobs, key=lambda row: (row.job.arrival_s, row.number)))
        reports_s, shares_s, still_s = 0.0, SHARES_S if self._shares else inf, inf
        now, stood = 0.0, dict[Member, tuple[int, ...]]()
        while now < self._until_s and (coming or self._busy):
            if not self._busy and self._shares:
                # Nobody wants anything until a job comes.
                shares_s = max(shares_s, coming[0].job.arrival_s // SHARES_S * SHARES_S)
            if not coming and still_s == inf:
                still_s, stood = now + STILL_S, {one: one.stood_still() for one in self._busy}
            # Nothing asks how the members stand while no job comes.
            arrival_s = coming[0].job.arrival_s if coming else inf
            routes_s = max(reports_s, arrival_s // REPORTS_S * REPORTS_S)
            now = min(routes_s, shares_s, still_s, self._until_s)
            for member in self.members:
                member.go_on(now)
            if now == still_s:
                still_s += STILL_S
                stood = {one: one.stood_still(stood[one]) for one in self._busy}
            if now == shares_s:
                self._share()
                shares_s += SHARES_S
            if now == routes_s and arrival_s <= self._until_s:
                reports_s = now + REPORTS_S
                standings = [member.standing() for member in self.members]
                while coming and coming[0].job.arrival_s < reports_s:
                    self._route(coming.popleft(), standings)
        for member in self.members:
            member.finish(member.taken)
        return self.recorder

    @property
    def _busy(self) -> list[Member]:
        return [member for member in self.members if member.is_busy]

    def _share(self) -> None:
        """Have the members guarantee what they are to guarantee from now on."""
        told = [member.told() for member in self.members]
        sizes = sizes_of([metrics for *_, metrics in told])
        before = [tree for tree, *_ in told]
        wanted = (wanted_of(report, metrics.capacity) for _, report, metrics in told)
        after = shared(list(map(Share, before, wanted, sizes)))
        for member, old, new in zip(self.members, before, after, strict=True):
            if new != old:
                member.set_queues(new, digest_of(old))

    def _route(self, row: JobRow, standings: list[Standing]) -> None:
        chosen = least_outstanding(standings, row.job)[0]
        standings[chosen].outstanding_s += work_s(row.job, standings[chosen])
        self.members[chosen].take(row)
