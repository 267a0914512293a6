"""Runs that are played: where each is looked at, and what the cluster's pages read there."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rm.core import ResourceManager
from sim.replay.candidate_scores import Weighed, Weighings
from sim.replay.client_view import AskedManager
from sim.replay.recorded_run import RecordedRun, Rerun, until
from sim.replay.timeline import Timeline, timeline_of
from sim.replay.unheard_ends import UnheardEnds
from weft.client.api import RefusedError
from weft.client.terms import put_first
from weft.model.errors import WeftError
from weft.model.ids import AppId
from weft.model.job import Job
from weft.protocol.effects import Effect, Note
from weft.protocol.facts import facts_of
from weft.protocol.messages import Outcome
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Explanation,
    NodeReport,
    QueueReport,
    Refused,
)
from weft.runtime.factlines import fact_to_dict
from weft.web import following
from weft.web.history import History

# Time of the run between samples of how full the cluster is.
SAMPLE_S = 2.0
# Candidates of so many later steps are worked out with those that were asked for.
STEPS_AHEAD = 24


class Run:
    """One run with its columns, and the candidates of its decisions."""

    def __init__(self, played: RecordedRun) -> None:
        """Take a run; raises WeftError where nothing was granted: there is nothing to look at."""
        self.played = played
        self.timeline: Timeline = timeline_of(played)
        if not self.timeline.decisions:
            raise WeftError(f"{played.name}: nothing was granted, so there is nothing to play")
        self._weighings = Weighings(played.steps)

    def described(self) -> dict[str, Any]:
        """Return what a list of the runs says of it; plain data."""
        timeline = self.timeline
        return {
            "name": self.played.name,
            "scheduler": self.played.scheduler,
            "simulated": self.played.simulated,
            "from": self.played.says,
            "jobs": len(timeline.jobs),
            "tasks": timeline.decisions,
            "nodes": len(timeline.nodes),
            "steps": len(self.played.steps),
            "first_s": timeline.first_s,
            "last_s": timeline.last_s,
        }

    def columns(self) -> dict[str, Any]:
        """Return the timeline as plain data, with what its numbers stand for."""
        return {
            **self.described(),
            **asdict(self.timeline),
            "types": list(self.played.types.names),
            "outcomes": {one.value: one.name for one in Outcome},
        }

    def weighed(self, row: int) -> dict[str, Any]:
        """Return who competed for the room that a container of the timeline got; plain data."""
        timeline = self.timeline
        found: Weighed | None = None
        if 0 <= row < len(timeline.start) and timeline.stage[row] >= 0:
            found = self._weighings.of(timeline.step[row], timeline.turn[row], STEPS_AHEAD)
        if found is None:
            raise WeftError(f"there is no decision {row}")
        places = {job["app"]: place for place, job in enumerate(timeline.jobs)}
        return {
            "row": row,
            "gang": found.gang,
            "free": list(found.free),
            "by": put_first_by(found),
            "more": found.more,
            "ranked": [
                [places.get(one.app, -1), one.stage, one.pending, dict(one.scores)]
                for one in found.ranked
            ],
            "others": [
                [places.get(one.app, -1), one.stage, one.pending, one.why] for one in found.others
            ],
        }


def put_first_by(found: Weighed) -> str:
    """Return the term or the rule that put the chosen one first; "" where nobody competed."""
    if found.kept:
        return "reservation: the node was kept for it"
    if len(found.ranked) < 2:
        return ""
    first, second = found.ranked[:2]
    why = put_first(dict(first.scores), dict(second.scores), alike=first.app == second.app)
    if why and not (found.before and why.startswith("bundle: ")):
        return why
    if found.before:
        return "bundle: it was picked in one pass with the one before it, by the terms of that pass"
    return "the order of the line: queue, priority, submission"


class PlayedClient:
    """The calls of `weft.client.api.AsyncClient` at a moment of a run; it changes nothing."""

    missing: tuple[int, ...] = ()

    def __init__(self, runs: list[Run], history: History) -> None:
        self.runs = runs
        self.chosen = 0
        self._history = history
        self._unheard = UnheardEnds(history.running)
        self._rerun = Rerun(runs[0].played.steps)
        self._sampled_s = 0.0
        self._busy = asyncio.Lock()
        self._at_s = runs[0].timeline.first_s

    async def look(self, run: int, at_s: float) -> None:
        """Go to a time of a run, s on its clock."""
        async with self._busy:
            if run != self.chosen:
                self.chosen = run
                self._rerun = Rerun(self.runs[run].played.steps)
            self._at_s = at_s
            await asyncio.to_thread(self._go)
        self._history.version += 1

    def _go(self) -> None:
        steps = self.runs[self.chosen].played.steps
        number = max(1, until(steps, self._at_s))
        if number < self._rerun.at or not self._rerun.at:
            self._history.clear()
            self._sampled_s = 0.0
        self._history.cluster_ts = self.runs[self.chosen].played.cluster_ts
        self._rerun.seek(number, self._heard)

    def _heard(
        self, event: Any, now: float, orders: list[Effect], manager: ResourceManager
    ) -> None:
        for order in orders:
            for fact in facts_of(order.fact) if type(order) is Note else ():
                self._history.learn(fact_to_dict(fact, now))
        for closed, ended_s in self._unheard.answered(event, now, manager):
            self._history.learn(fact_to_dict(closed, ended_s))
        if now >= self._sampled_s:
            self._sampled_s = now - now % SAMPLE_S + SAMPLE_S
            asked = AskedManager(manager, now)
            following.take(self._history, asked.metrics(), asked.queues())

    async def _asked(self) -> AskedManager:
        async with self._busy:
            if not self._rerun.at:
                await asyncio.to_thread(self._go)
            return AskedManager(self._rerun.manager, max(self._at_s, self._rerun.now))

    async def metrics(self) -> ClusterMetrics:
        """Return counts over the cluster."""
        return (await self._asked()).metrics()

    async def nodes(self, states: Iterable[str] = ()) -> tuple[NodeReport, ...]:
        """Return all nodes."""
        return (await self._asked()).nodes()

    async def applications(self, states: Iterable[str] = ()) -> tuple[ApplicationReport, ...]:
        """Return applications that had been submitted, the oldest first."""
        return (await self._asked()).applications(states)

    async def application(self, app: AppId) -> ApplicationReport:
        """Return one application with its stages."""
        return (await self._asked()).application(app)

    async def job(self, app: AppId) -> Job:
        """Return the job of an application."""
        return (await self._asked()).job(app)

    async def explain(self, app: AppId) -> Explanation:
        """Return why its pending stages were pending."""
        return (await self._asked()).explain(app)

    async def containers(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return containers of an application, running and lately ended."""
        return (await self._asked()).containers(app)

    async def queues(self) -> QueueReport:
        """Return the tree of queues."""
        return (await self._asked()).queues()

    async def _refuse(self, *arguments: Any, **more: Any) -> Any:
        """Refuse whatever would change something."""
        problem = "this run is over: it is played, and nothing of it can be changed"
        raise RefusedError(Refused("failed_precondition", "player", problem))

    kill = move = set_priority = set_expiry = decommission = recommission = _refuse
    submit = new_application = _refuse
