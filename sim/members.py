"""Members of a cluster in virtual time: managers with nodes of their own, and jobs sent to each.

The members meet at the router alone, which decides as the live one does
(`weft.policies.members`): what they report is as old as the report's interval, and a job that comes
meanwhile counts by its estimates. All write into one recorder, as application numbers, nodes and
containers are of one member each.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from rm.core import ResourceManager
from rm.report.reports import metrics
from sim.client import Client
from sim.cluster import STILL_S, Simulation
from sim.engine import Effects
from sim.faults import NO_FAULTS
from sim.recorder import JobRow, Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec
from weft.model.errors import InputError
from weft.model.job import Job
from weft.policies.members import Standing, least_outstanding, work_s
from weft.protocol.effects import Started, TimerFired

# The members report so often, s; `weft.router` asks them as often.
REPORTS_S = 1.0


class RoutedClient(Client):
    """Submits nothing that no router sent it."""

    def handle(self, event: Started | TimerFired, now: float) -> Effects:
        """Submit the job whose number the timer's key is."""
        return [] if isinstance(event, Started) else super().handle(event, now)


class Member(Simulation):
    """One of the members; it knows all jobs, and runs those that it takes."""

    __slots__ = ("taken",)

    def __init__(
        self, cluster: ClusterSpec, jobs: Sequence[Job], settings: SimSettings, recorder: Recorder
    ) -> None:
        super().__init__(cluster, jobs, settings, recorder)
        self.taken: list[JobRow] = []

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
        self._members: list[Member] = []
        for at in range(count):
            part = nodes[len(nodes) * at // count : len(nodes) * (at + 1) // count]
            numbers = {"member": at + 1, "members": count}
            own = replace(settings, manager={**settings.manager, **numbers})
            self._members.append(Member(replace(cluster, nodes=part), jobs, own, recorder))
        recorder.on_done = self._stop

    def _stop(self) -> None:
        for member in self._members:
            member.engine.stop()

    @property
    def manager(self) -> ResourceManager:
        """Return the first member's manager; all have the same settings."""
        return self._members[0].manager

    @property
    def stuck(self) -> str:
        """Return why nothing can happen any more; empty: something can."""
        return next((member.stuck for member in self._members if member.stuck), "")

    @property
    def now_s(self) -> float:
        """Return the virtual time of the member that came furthest, s."""
        return max(member.now_s for member in self._members)

    @property
    def events(self) -> int:
        """Return how many events there were in all members."""
        return sum(member.events for member in self._members)

    def run(self) -> Recorder:
        """Drive all members to the end of the last job."""
        coming = deque(sorted(self.recorder.jobs, key=lambda row: (row.job.arrival_s, row.number)))
        now = 0.0
        while coming and coming[0].job.arrival_s <= self._until_s:
            # Nothing asks how the members stand while no job comes.
            now = max(now, coming[0].job.arrival_s // REPORTS_S * REPORTS_S)
            for member in self._members:
                member.go_on(now)
            standings = [member.standing() for member in self._members]
            now += REPORTS_S
            while coming and coming[0].job.arrival_s < now:
                self._route(coming.popleft(), standings)
        while now < self._until_s and (busy := [one for one in self._members if one.is_busy]):
            now = min(now + STILL_S, self._until_s)
            for member in busy:
                before = member.stood_still()
                member.go_on(now)
                member.stood_still(before)
        for member in self._members:
            member.finish(member.taken)
        return self.recorder

    def _route(self, row: JobRow, standings: list[Standing]) -> None:
        chosen = least_outstanding(standings, row.job)[0]
        standings[chosen].outstanding_s += work_s(row.job, standings[chosen])
        self._members[chosen].take(row)
