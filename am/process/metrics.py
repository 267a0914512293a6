"""An Application Master process's series, from its masters' facts."""

import time

import numpy as np

from am.ask.registry import HoldAsker
from am.ask.view import HoldView, HoldWish
from weft.model.ids import AttemptId
from weft.protocol.facts import Fact, JobProgressed, MasterPlanned, Remark, RunFact
from weft.runtime.exposition import DURATION_BUCKETS_S, Exposition

REMARKS = "Unusual events"
_STATES = ("pending", "running", "finished", "failed")


class MasterMetrics:
    """Turns facts into series; the series of a master go away with it."""

    def __init__(self, exposition: Exposition) -> None:
        self._out = exposition
        # A counter that begins at 0 shows its first event as a rate.
        for level in ("info", "warning"):
            exposition.counter("weft_remarks", REMARKS, (("level", level),))

    def note(self, fact: Fact | RunFact) -> None:
        """Take one fact in."""
        out = self._out
        if isinstance(fact, JobProgressed):
            for state in _STATES:
                labels = (("attempt", str(fact.attempt)), ("state", state))
                out.gauge("weft_job_tasks", "Tasks of a job", getattr(fact, state), labels)
        elif isinstance(fact, MasterPlanned):
            text = "Time that building a plan took, s"
            planner = (("planner", fact.planner),)
            took = out.histogram("weft_planning_seconds", text, planner, DURATION_BUCKETS_S)
            took.observe(fact.planning_time_s)
        elif isinstance(fact, Remark):
            out.count("weft_remarks", REMARKS, 1, (("level", fact.level),))

    def timed(self, asker: HoldAsker) -> HoldAsker:
        """Return the same asker, with the time that it takes in a histogram (COBRA table IV)."""
        return _Timed(asker, self._out)

    def reported(self, late_s: float) -> None:
        """Observe how long measured use was on its way (COBRA table IV), s of wall-clock time."""
        text = "Time from a node's measurement of containers to their master, s of wall-clock time"
        self._out.histogram("weft_use_transmission_seconds", text).observe(max(late_s, 0.0))

    def hosted(self, masters: int) -> None:
        """Set how many masters this process drives now."""
        self._out.gauge("weft_masters", "Masters in this process", masters)

    def gone(self, attempt: AttemptId) -> None:
        """Drop the series of a master that ended."""
        self._out.drop("attempt", str(attempt))


class _Timed:
    """Decides as the asker inside does."""

    def __init__(self, inner: HoldAsker, out: Exposition) -> None:
        self.container = inner.container
        self.over_estimate = inner.over_estimate
        self._inner = inner
        text = "Time that deciding about reusable containers took (COBRA: Af and Pdelay), s"
        self._took = out.histogram("weft_holding_seconds", text)

    def hold(self, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        """Return what the asker inside wishes, and observe the time that it took."""
        began_s = time.perf_counter()
        wish = self._inner.hold(view, now, rng)
        self._took.observe(time.perf_counter() - began_s)
        return wish
