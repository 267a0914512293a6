"""What can befall one process: it stands still, dies amid its work, runs on another clock.

Every outage wraps the door of an actor's core, so that a run without outages pays nothing.
"""

from collections.abc import Callable

from sim.engine import Actor, Door, Effects, Engine
from weft.model.ids import NodeId
from weft.protocol.effects import Persist, TimerFired
from weft.protocol.messages import NodeHeartbeated
from weft.protocol.record import record

Act = Callable[[], None]


@record
class Die:
    """The effect that ends a process amid its effects: those that would follow are not done."""

    act: Act


class Pauses:
    """Processes that stand still: what reaches them waits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Each node's newest report that had to wait came at this time.
        self.waited: dict[NodeId, float] = {}
        self._waiting: dict[Actor, tuple[Door, list[object]]] = {}

    def pause(self, actor: Actor) -> None:
        """Let a process take in nothing from now on."""
        if actor in self._waiting or not actor.alive:
            return
        waiting: list[object] = []
        self._waiting[actor] = (actor.handle, waiting)

        def wait(event: object, now: float) -> Effects:
            waiting.append(event)
            if type(event) is NodeHeartbeated:
                self.waited[event.node_id] = self._engine.now
            return []

        actor.handle = wait

    def stands(self, actor: Actor) -> bool:
        """Return whether a process stands still."""
        return actor in self._waiting

    def resume(self, actor: Actor) -> None:
        """Let it run on: first its timers are due, then the waiting messages, in order."""
        stood = self._waiting.pop(actor, None)
        if stood is None or not actor.alive:
            return
        actor.handle, waiting = stood
        for event in waiting:
            if type(event) is TimerFired:
                self._engine.set_timer(actor, event.key, 0.0)
        for event in waiting:
            if type(event) is not TimerFired:
                self._engine.soon(actor, event)


def die_amid(actor: Actor, keep: int, act: Act) -> None:
    """Kill a process at its next event with more than `keep` effects, after so many of them."""
    inner = actor.handle

    def handle(event: object, now: float) -> Effects:
        effects = inner(event, now)
        if len(effects) <= keep:
            return effects
        actor.handle = inner
        return [*effects[:keep], Die(act)]

    actor.handle = handle


def set_clock(actor: Actor, ahead_s: float) -> None:
    """Set a process's clock `ahead_s` ahead of the cluster's (below 0: behind)."""
    inner = actor.handle
    actor.handle = lambda event, now: inner(event, now + ahead_s)


def die_without_room(actor: Actor, full: Callable[[], bool], act: Act) -> None:
    """End a process that must write where its disk is full: nothing after the write is done."""
    inner = actor.handle

    def handle(event: object, now: float) -> Effects:
        effects = inner(event, now)
        if full():
            for place, effect in enumerate(effects):
                if type(effect) is Persist:
                    return [*effects[:place], Die(act)]
        return effects

    actor.handle = handle
