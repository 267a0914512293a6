"""The Resource Manager: one door; what it decides is in the modules that it calls."""

from collections.abc import Callable

import numpy as np

from rm import clients, leaving, lifetime, recovery
from rm.masters import accepting, asking, ending
from rm.match.protocol import Matcher
from rm.nodes import registering, reporting, silence
from rm.placing import backfill, preempt
from rm.placing.allocation import match_all
from rm.placing.reserve import before_match, forget_served, start_gangs
from rm.queue_changes import expire
from rm.settings import ManagerSettings
from rm.state.books import Books, Handler
from rm.state.invariants import check
from rm.state.lifecycle import AttemptState
from weft.model.errors import InvariantError
from weft.model.queues import QueueSpec
from weft.model.resources import ResourceTypes
from weft.protocol.effects import (
    ClientRequested,
    Effect,
    NodesIdle,
    Recovered,
    ReportsWaited,
    SetTimer,
    TimerFired,
)
from weft.protocol.event_unions import ManagerTold, UnknownEventError
from weft.protocol.messages import (
    AttemptFinished,
    AttemptRegistered,
    ContainersAsked,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
)

MATCH_TIMER, LIVENESS_TIMER, PREEMPT_TIMER = "match", "liveness", "preempt"
# The last two are rounds of preemption between those of PREEMPT_TIMER.
CLAIM_TIMER, DUE_TIMER = "claim", "due"

# A new ask waits for a round for this part of preemption's interval.
_CLAIM_DELAY_FRACTION = 0.1


class ResourceManager:
    """Told what happened, answers with what to do; see ARCHITECTURE, Messages.

    The shell's first event is `Recovered`. `cluster_ts` is in ms since the epoch, `rng` gives the
    attempts their seeds.
    """

    def __init__(
        self,
        cluster_ts: int,
        types: ResourceTypes,
        queues: QueueSpec,
        matcher: Matcher,
        settings: ManagerSettings,
        rng: np.random.Generator,
    ) -> None:
        self.books = Books(cluster_ts, types, queues, matcher, settings, rng)
        backfill.attach(self.books)
        self._watching = False
        self._may_need_timers = True
        self._preempting = settings.preemption or settings.preemption_intra_queue
        self._watch_s = self._watch_at = 0.0
        # So many asks were opened before the last round of preemption.
        self._opened_at_round = 0
        self._claim_set = False
        # The next chosen container has to go at this time, as far as a timer is set.
        self._due_s = -1.0
        self._handlers: dict[type, Handler] = {
            NodeHeartbeated: reporting.heartbeat,
            NodesIdle: reporting.idle,
            ReportsWaited: self._waited,
            ContainersAsked: asking.asked,
            NodeRegistered: registering.register,
            NodeUnregistered: silence.unregister,
            AttemptRegistered: accepting.register,
            AttemptFinished: ending.finished,
            ClientRequested: clients.answer,
            Recovered: recovery.recover,
            TimerFired: self._timer,
        }

    def handle(self, event: ManagerTold, now: float) -> list[Effect]:
        """Take in one event; the effects are to be done in order."""
        books = self.books
        books.now = now
        try:
            handler = self._handlers[type(event)]
        except KeyError:
            raise UnknownEventError("a resource manager", event) from None
        handler(books, event)
        if self._may_need_timers:
            self._set_timers()
        if books.records or books.unsaved_tasks:
            return books.answer()
        # This does what `answer` does, which costs a call.
        out, books.out = books.out, []
        return out

    def _set_timers(self) -> None:
        """Set the timers for which an event may have given reason."""
        books = self.books
        if not self._watching:
            self._watch()
        if books.settings.prompt and not books.matching.timer_set:
            self._arm()
        fresh = books.rows.opened != self._opened_at_round and not books.matcher.preempts
        if self._preempting and fresh and not self._claim_set:
            # What arrives together is looked at together.
            self._claim_set = True
            wait_s = books.settings.preemption_interval_s * _CLAIM_DELAY_FRACTION
            books.out.append(SetTimer(wait_s, CLAIM_TIMER))
        self._may_need_timers = books.settings.prompt or self._preempting

    def wrap_matcher(self, layer: Callable[[Matcher], Matcher]) -> None:
        """Put a layer around the policy: it may look on, and decides as the policy does."""
        self.books.decide_by(layer(self.books.matcher))

    def change_policy(self, matcher: Matcher, settings: ManagerSettings, now: float) -> None:
        """Decide by another policy and other settings from now on; what runs goes on.

        The new one hears of the applications that are there. Nodes may stay filled as far as the
        policy before allowed.
        """
        books = self.books
        books.settings, self._may_need_timers = settings, True
        books.decide_by(matcher)
        backfill.attach(books)
        books.slack[:] = np.maximum(books.slack, matcher.slack(books.view))
        for slot, app in enumerate(books.app_at):
            if app is not None:
                matcher.app_joined(books.view, slot, now)
        books.matching.changed()

    def check(self) -> None:
        """Raise InvariantError where the books contradict themselves."""
        check(self.books)

    def _timer(self, _: Books, event: TimerFired) -> None:
        if event.key == MATCH_TIMER:
            self._match()
        elif event.key == LIVENESS_TIMER:
            if not self._forgive():
                silence.expire(self.books)
                ending.expire(self.books)
            forget_served(self.books)
            expire(self.books)
            self._watch()
        elif event.key == PREEMPT_TIMER:
            self._look()
            self._preempt()
        elif event.key in (CLAIM_TIMER, DUE_TIMER):
            self._look()
        elif isinstance(event.key, tuple) and event.key[0] == leaving.DECOMMISSION:
            leaving.alarm(self.books, event.key[1])
        elif isinstance(event.key, tuple) and event.key[0] == lifetime.LIFETIME:
            lifetime.alarm(self.books, event.key[1])
        else:
            raise InvariantError(f"nobody set the timer {event.key!r}")

    def _waited(self, books: Books, event: ReportsWaited) -> None:
        """Count the time in which reports waited to be read as nobody's silence."""
        silence.forgive(books, event.for_s)
        ending.forgive(books, event.for_s)

    def _look(self) -> None:
        """Make one round of preemption; the next comes when the first of those chosen has to go."""
        books = self.books
        self._opened_at_round, self._claim_set = books.rows.opened, False
        if books.matcher.preempts:
            # YARN's monitor looks at its interval, and at nothing else.
            preempt.ask_policy(books)
            return
        preempt.look(books)
        due_s = min((by_s for by_s, _ in books.marks.values()), default=-1.0)
        if due_s >= 0 and due_s != self._due_s:
            self._due_s = due_s
            books.out.append(SetTimer(max(0.0, due_s - books.now), DUE_TIMER))

    def _preempt(self) -> None:
        """Set the timer of the next round of preemption."""
        self.books.out.append(SetTimer(self.books.settings.preemption_interval_s, PREEMPT_TIMER))

    def _arm(self) -> None:
        """Set a timer (prompt pace) that collects what arrives together before matching."""
        books = self.books
        work = books.matching.pass_due and books.anything_waits
        if work or books.dirty_attempts or books.dirty_nodes:
            books.matching.timer_set = True
            books.out.append(SetTimer(0.0, MATCH_TIMER))

    def _match(self) -> None:
        books = self.books
        books.matching.timer_set = False
        books.rows.compact()
        if books.must_keep_nodes(books.now):
            before_match(books)
        match_all(books)
        books.matching.end_pass()
        start_gangs(books)
        for attempt in list(books.dirty_attempts.values()):
            if attempt.state is AttemptState.RUNNING:
                asking.answer_attempt(books, attempt)
        for node in list(books.dirty_nodes.values()):
            reporting.answer_node(books, node)
        books.dirty_attempts.clear()
        books.dirty_nodes.clear()

    def _watch(self) -> None:
        """Look for silent nodes and masters a few times within the shortest patience."""
        settings = self.books.settings
        shortest = min(settings.node_expiry_s, settings.master_expiry_s)
        if self._preempting and not self._watching:
            self._preempt()
        self._watching = True
        self._watch_s = max(shortest / 20, 0.05)
        self._watch_at = self.books.now + self._watch_s
        self.books.out.append(SetTimer(self._watch_s, LIVENESS_TIMER))

    def _forgive(self) -> bool:
        """Return whether a check comes far too late: it was the manager that paused, not the nodes.

        Nobody's time ran while the manager's stood, and nobody is judged before the next look, by
        when what waits to be heard was heard.
        """
        late_s = self.books.now - self._watch_at
        if late_s <= self._watch_s:
            return False
        silence.forgive(self.books, late_s)
        ending.forgive(self.books, late_s)
        return True
