"""Foreign masters (Spark's, Flink's) of a recorded run, as jobs that a simulation can run again.

Their own decisions are on no tape, but all that the Resource Manager received is: requests, what
was granted and when it ended. That is a recording (`weft.model.recording`), played by
`am.recorded`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from weft.model.ids import AppId, AttemptId, ContainerId, app_of_attempt, attempt_of_container
from weft.model.job import Job
from weft.model.recording import Asked, Recording, Request, Told
from weft.model.resources import ResourceTypes
from weft.protocol.effects import Effect, Note, Send
from weft.protocol.facts import Closed, facts_of
from weft.protocol.messages import (
    AttemptFinished,
    AttemptRegistered,
    ContainersAsked,
    ContainersGranted,
    NodeAnswered,
    containers_of,
)


@dataclass(slots=True)
class Granted:
    """A container as the manager saw it, times on the cluster's clock.

    `request` is (life of the manager, ask id); its master was notified at `told_s`.
    """

    request: tuple[int, int]
    told_s: float
    closed_s: float = -1.0


@dataclass(slots=True)
class Attempt:
    """One attempt of a foreign master.

    The attempt's container was ordered at `began_s`. `requests` is by (life, ask id), as each
    `life` of the manager counts asks anew.
    """

    began_s: float = -1.0
    requests: dict[tuple[int, int], Request] = field(default_factory=dict)
    asks: list[tuple[float, tuple[int, int], int, float, float]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    granted: dict[ContainerId, Granted] = field(default_factory=dict)
    ended_s: float = -1.0
    succeeded: bool = False
    life: int = 0


class Foreign:
    """Listens to a Resource Manager's events and answers.

    `is_foreign` tells applications whose masters are not Weft's; others are left out.
    """

    def __init__(self, is_foreign: Callable[[AppId], bool]) -> None:
        self._is_foreign = is_foreign
        self._attempts: dict[AttemptId, Attempt] = {}

    def listen(self, event: object, now: float, orders: list[Effect], types: ResourceTypes) -> None:
        """Follow an event of the manager and its answer."""
        if isinstance(event, AttemptRegistered | ContainersAsked | AttemptFinished):
            attempt = self._of(event.attempt_id)
            if attempt is None:
                pass
            elif isinstance(event, AttemptRegistered):
                self._registered(attempt, now)
            elif isinstance(event, ContainersAsked):
                self._asked(attempt, event, now, types)
            elif attempt.ended_s < 0:
                attempt.ended_s, attempt.succeeded = now, event.succeeded
        for order in orders:
            if isinstance(order, Send):
                self._sent(order.message, now)
            elif isinstance(order, Note):
                for fact in facts_of(order.fact):
                    if isinstance(fact, Closed):
                        self._closed(fact.container, now)

    def _of(self, number: AttemptId) -> Attempt | None:
        """Return an attempt of a foreign master; None where it is Weft's own."""
        attempt = self._attempts.get(number)
        if attempt is None and self._is_foreign(app_of_attempt(number)):
            attempt = self._attempts[number] = Attempt()
        return attempt

    def _registered(self, attempt: Attempt, now: float) -> None:
        """Begin an attempt without its own container (unmanaged), or in another life."""
        if attempt.began_s < 0:
            attempt.began_s = now
        last = {key: (total, *more) for _, key, total, *more in attempt.asks}
        for key, (_, duration_s, score) in last.items():
            if key[0] == attempt.life:
                # What the manager forgot is no longer wanted under this id.
                had = sum(one.request == key for one in attempt.granted.values())
                attempt.asks.append((now, key, had, duration_s, score))
        attempt.life += bool(attempt.asks)

    def _asked(
        self, attempt: Attempt, event: ContainersAsked, now: float, types: ResourceTypes
    ) -> None:
        for ask in event.asks:
            key = (attempt.life, ask.ask_id)
            demand = {name: amount for name, amount in types.mapping(ask.demand).items() if amount}
            attempt.requests[key] = Request(demand, (), ask.label, ask.nodes, ask.racks, ask.strict)
            attempt.asks.append((now, key, ask.total, ask.duration_s, ask.pri_score))
        told = Told(now, event.progress, event.remaining_work, event.remaining_path_s)
        if not attempt.told or attempt.told[-1][1:] != told[1:]:
            attempt.told.append(told)

    def _sent(self, message: object, now: float) -> None:
        if isinstance(message, NodeAnswered):
            for launch in message.start:
                attempt = self._of(launch.attempt_id)
                if attempt is not None and attempt.began_s < 0:
                    attempt.began_s = now
        elif isinstance(message, ContainersGranted):
            attempt = self._of(message.attempt_id)
            if attempt is not None:
                for one in containers_of(message.containers):
                    granted = Granted((attempt.life, one.ask_id), now)
                    attempt.granted.setdefault(one.container_id, granted)

    def _closed(self, number: ContainerId, now: float) -> None:
        attempt = self._attempts.get(attempt_of_container(number))
        if attempt is not None and number in attempt.granted:
            granted = attempt.granted[number]
            if granted.closed_s < 0:
                granted.closed_s = now

    # -- recordings --------------------------------------------------------------------------------

    def recordings(self, ended: Mapping[AppId, float], until_s: float) -> dict[AppId, Recording]:
        """Return the last attempt of every application that asked for something or ended.

        `ended`: when applications ended; one that did not is cut at `until_s`.
        """
        last: dict[AppId, tuple[AttemptId, Attempt]] = {}
        for number, attempt in sorted(self._attempts.items()):
            if attempt.began_s >= 0:
                last[app_of_attempt(number)] = (number, attempt)
        found = {}
        for app, (_, attempt) in last.items():
            end_s = attempt.ended_s if attempt.ended_s >= 0 else ended.get(app, until_s)
            found[app] = _recording(attempt, max(end_s, attempt.began_s))
        return found


def _recording(attempt: Attempt, end_s: float) -> Recording:
    """Return an attempt, with times from its own beginning."""
    began_s, keys = attempt.began_s, list(attempt.requests)
    places = {key: place for place, key in enumerate(keys)}
    held: list[list[float]] = [[] for _ in keys]
    last_s = began_s
    for granted in attempt.granted.values():
        key = granted.request
        if key not in places:
            # It was asked for in an earlier life of the manager.
            continue
        closed_s = granted.closed_s if granted.closed_s >= 0 else end_s
        closed_s = max(granted.told_s, min(closed_s, end_s))
        held[places[key]].append(closed_s - granted.told_s)
        last_s = max(last_s, closed_s)
    totals = [0] * len(keys)
    asks = []
    for now, key, total, duration_s, score in attempt.asks:
        if key in places and now <= end_s:
            totals[places[key]] = total
            asks.append(Asked(now - began_s, places[key], total, duration_s, score))
    requests = tuple(
        replace(attempt.requests[key], held_s=tuple(held[place][: totals[place]]))
        for place, key in enumerate(keys)
    )
    told = tuple(one._replace(at_s=one.at_s - began_s) for one in attempt.told if one.at_s <= end_s)
    return Recording(
        end_s - began_s, requests, tuple(asks), told, end_s - last_s, attempt.succeeded
    )


def is_foreign(job: Job) -> bool:
    """Return whether a job brings a master that is not Weft's (Weft plays recorded ones)."""
    return job.master is not None and job.master.recorded is None


def played(job: Job, recording: Recording) -> Job:
    """Return a job with a master of its own, to be played as it was recorded."""
    assert job.master is not None
    master = replace(job.master, command=(), environment=(), recorded=recording)
    return replace(job, master=master)
