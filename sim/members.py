"""Members of a cluster in virtual time: managers with nodes of their own, and jobs sent to each.

The members meet at the router alone, which decides as the live one does
(`weft.policies.members`): what they report is as old as the report's interval, and a job that comes
meanwhile counts by its estimates. It moves queues' guarantees between members as often as the live
one (`weft.policies.shares`). All write into one recorder, as application numbers, nodes and
containers are of one member each.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from rm.core import ResourceManager
from rm.report.reports import metrics, queue
from sim.client import Client
from sim.cluster import STILL_S, Simulation
from sim.engine import Effects
from sim.faults import OF_ROUTER, Fault, FaultKind, Faults
from sim.recorder import JobRow, Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec
from weft.model.errors import InputError
from weft.model.ids import NodeId
from weft.model.job import Job
from weft.model.queues import QueueSpec, digest_of
from weft.policies.members import Standing, least_outstanding, work_s
from weft.policies.shares import SHARES_S, moves, shared, sizes_of, wanted_of, whole
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
        return RoutedClient(jobs, self.recorder, repeat=self._lossy)

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

    def ask(self, request: SetQueues) -> None:
        """Ask the manager, unless it is gone."""
        manager = self.actors.get(MANAGER)
        if manager is not None:
            self.queues_set += 1
            self.engine.soon(manager, ClientRequested("shares", request))

    def later(self, delay_s: float, request: SetQueues) -> None:
        """Ask the manager after some time."""
        self._fault_executor.later(delay_s, lambda: self.ask(request))

    @property
    def is_there(self) -> bool:
        """Whether its manager answers."""
        return MANAGER in self.actors and not self._fault_executor.stands_still

    def has_queues(self, queues: QueueSpec) -> bool:
        """Return whether these are what the manager was set, wherever guarantees are."""
        return whole(self.manager.books.queues.root) == whole(queues)

    def standing(self) -> Standing:
        """Return what the manager reports of itself."""
        if not self.is_there:
            return Standing()
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
        shares_s: float = SHARES_S,
    ) -> None:
        """Divide the nodes into `count` parts, in their order.

        Guarantees move every `shares_s`; infinite: never.
        """
        nodes = cluster.nodes
        if not 0 < count <= len(nodes):
            raise InputError("--members", f"expected 1 to {len(nodes)}, as many as nodes")
        self.recorder = recorder
        self.cluster = cluster
        self.settings = settings
        self.members: list[Member] = []
        for at in range(count):
            part = nodes[len(nodes) * at // count : len(nodes) * (at + 1) // count]
            numbers = {"member": at + 1, "members": count}
            faults = own_faults(settings.faults, at + 1, count, {one.node_id for one in part})
            own = replace(settings, manager={**settings.manager, **numbers}, faults=faults)
            self.members.append(Member(replace(cluster, nodes=part), jobs, own, recorder))
        self._of_router = [one for one in settings.faults.script if one.kind in OF_ROUTER]
        self._shares = count > 1 and shares_s < inf and moves(cluster.queues)
        self._shares_every_s = shares_s
        self._coming = deque(sorted(recorder.jobs, key=lambda row: (row.job.arrival_s, row.number)))
        # When members report next, and when guarantees are looked at next, s.
        self._reports_s, self._shares_s = 0.0, shares_s if self._shares else inf
        self._now_s = 0.0
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
        until_s, still_s = self.settings.until_s, inf
        stood = dict[Member, tuple[int, ...]]()
        while self._now_s < until_s and (self._coming or self._busy):
            if not self._busy and self._shares:
                # Nobody wants anything until a job comes.
                every_s = self._shares_every_s
                idle_s = self._coming[0].job.arrival_s // every_s * every_s
                self._shares_s = max(self._shares_s, idle_s)
            if not self._coming and still_s == inf:
                still_s = self._now_s + STILL_S
                stood = {one: one.stood_still() for one in self._busy}
            self._step(min(still_s, until_s))
            if self._now_s == still_s:
                still_s += STILL_S
                stood = {one: one.stood_still(stood[one]) for one in self._busy}
        for member in self.members:
            member.finish(member.taken)
        return self.recorder

    def go_on(self, until_s: float) -> None:
        """Run on after the end of the last job."""
        while self._now_s < until_s:
            self._step(until_s)

    def mend(self) -> None:
        """Bring back whatever is away."""
        for member in self.members:
            member.mend()

    @property
    def _busy(self) -> list[Member]:
        return [member for member in self.members if member.is_busy]

    def _step(self, until_s: float) -> None:
        """Drive all members to the next time when the router does something."""
        # Nothing asks how the members stand while no job comes.
        arrival_s = self._coming[0].job.arrival_s if self._coming else inf
        routes_s = max(self._reports_s, arrival_s // REPORTS_S * REPORTS_S)
        routes_s = routes_s if arrival_s <= self.settings.until_s else inf
        self._now_s = now = min(routes_s, self._shares_s, until_s)
        for member in self.members:
            member.go_on(now)
        gone = any(self._during(now, FaultKind.LOSE_ROUTER))
        if now == self._shares_s:
            self._shares_s += self._shares_every_s
            if not gone:
                self._share(now)
        if now == routes_s:
            self._reports_s = now + REPORTS_S
            standings = [member.standing() for member in self.members]
            if gone or not any(one.up for one in standings):
                # Clients ask again.
                return
            while self._coming and self._coming[0].job.arrival_s < self._reports_s:
                self._route(self._coming.popleft(), standings)

    def _during(self, now: float, kind: FaultKind) -> list[Fault]:
        """Return the faults of a kind that the router has."""
        of_kind = (fault for fault in self._of_router if fault.kind is kind)
        return [one for one in of_kind if one.at_s <= now < one.at_s + one.for_s]

    def _share(self, now: float) -> None:
        """Have the members guarantee what they are to guarantee from now on."""
        there = [member for member in self.members if member.is_there]
        if not there:
            return
        told = [member.told() for member in there]
        sizes = sizes_of([metrics for *_, metrics in told])
        before = [tree for tree, *_ in told]
        wanted = (wanted_of(report, metrics.capacity) for _, report, metrics in told)
        after = shared(list(map(Share, before, wanted, sizes)))
        for member, old, new in zip(there, before, after, strict=True):
            if new != old and not self._during(now, FaultKind.LOSE_SHARES):
                self._tell(now, member, SetQueues(new, base=digest_of(old)))

    def _tell(self, now: float, member: Member, request: SetQueues) -> None:
        late = self._during(now, FaultKind.DELAY_SHARES)
        if not late:
            member.ask(request)
        for fault in (*late, *self._during(now, FaultKind.REPEAT_SHARES)):
            member.later(fault.for_s, request)

    def _route(self, row: JobRow, standings: list[Standing]) -> None:
        chosen = least_outstanding(standings, row.job)[0]
        standings[chosen].outstanding_s += work_s(row.job, standings[chosen])
        self.members[chosen].take(row)


def own_faults(faults: Faults, number: int, count: int, nodes: Collection[NodeId]) -> Faults:
    """Return what befalls one member: its nodes, its manager, and what befalls all.

    An operator sets the queues of all members, and a job's master is where the job is.
    """

    def own(fault: Fault) -> Fault | None:
        if fault.nodes:
            mine = tuple(name for name in fault.nodes if name in nodes)
            return replace(fault, nodes=mine) if mine else None
        everywhere = fault.kind in (FaultKind.QUEUES, FaultKind.LOSE_MASTER)
        concerns = everywhere or (fault.member - 1) % count + 1 == number
        return fault if concerns and fault.kind not in OF_ROUTER else None

    return replace(faults, script=tuple(filter(None, map(own, faults.script))))
