"""A Resource Manager among several: stands by, takes over, is suspended, steps down."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable

from rm.process.etcd_store import EtcdJournal, LeadershipLostError
from rm.process.journal_lines import Record
from rm.process.trust import Save, shared_keys
from rm.recovery import compact
from weft.ha.electing import Leadership, Standing
from weft.ha.etcd import Etcd, EtcdAwayError, EtcdSettings
from weft.ha.leading import Leading
from weft.protocol.requests import ManagerReport
from weft.runtime.exposition import Exposition
from weft.runtime.kept_clock import KeptClock
from weft.runtime.process import Process
from weft.runtime.role_settings import RmSettings
from weft.wire.tokens import Keys

RETRY_S = 0.3
# One that stepped down and has not ended by then is ended.
ENDED_AFTER_S = 3.0


class Ranks:
    """How this manager stands to the others, and what follows from it for its process."""

    def __init__(self, process: Process, settings: RmSettings, where: EtcdSettings) -> None:
        self._process = process
        self._out: Exposition = process.exposition
        self._where = where
        self._etcd = Etcd(where, self._took)
        self._advertise = settings.advertise
        self._unused = settings.state_dir
        self._clock = KeptClock(settings.epoch_s, settings.time_scale)
        self._loop = asyncio.get_running_loop()
        self._elected = asyncio.Event()
        self._listens = self.address = ""
        # It leads, and knows what its predecessor knew.
        self.serves = False
        self._left = False
        self.life: Callable[[], int] = lambda: 0
        # It returns why nothing new is accepted.
        self.trouble: Callable[[], str] = lambda: ""
        self.on_suspended: Callable[[str], None] = lambda reason: None
        expiry_s = min(settings.node_expiry_s, settings.master_expiry_s)
        self.leadership = Leadership(
            self._etcd,
            settings.lease_s,
            self._changed,
            self._renewed,
            process.clock.wall_s(expiry_s) / 2,
        )
        self.gate = Leading(self)
        self._show(Standing.STANDBY)

    # -- what the gate asks ------------------------------------------------------------------------

    @property
    def may_order(self) -> bool:
        """Whether this process leads at this moment, and serves."""
        return self.serves and self.leadership.may_order

    @property
    def may_answer(self) -> bool:
        """Whether what it knows may be read."""
        return self.serves and self.leadership.may_answer

    def refusal(self) -> tuple[str, str]:
        """Return why nothing is answered here, and the leader's address."""
        standing, leader = self.leadership.standing, self._leader
        if standing is Standing.STANDBY:
            return f"{self.address} stands by: {self.leadership.reason}", leader
        if standing is Standing.LEADER and not self.serves:
            return f"{self.address} takes over", ""
        why = self.leadership.reason or "its lease was not renewed in time"
        return f"{self.address} cannot say whether it leads: {why}", ""

    def report(self) -> ManagerReport:
        """Return what it says of itself."""
        now = self.leadership
        leads = now.standing in (Standing.LEADER, Standing.SUSPENDED)
        reason = now.reason
        if now.standing is Standing.LEADER:
            reason = self.trouble() if self.serves else "takes over"
        return ManagerReport(
            self.address,
            now.standing.value,
            self._leader,
            now.since_s,
            reason,
            self._where.text,
            self.life() if leads else 0,
        )

    @property
    def _leader(self) -> str:
        return str(self.leadership.leader.get("address", ""))

    # -- life --------------------------------------------------------------------------------------

    def listens(self, address: str) -> None:
        """Note where this manager listens."""
        self._listens = address
        self.address = self._advertise or address

    @property
    def places(self) -> dict[str, str]:
        """Return where it listens, by the flag that says so."""
        return {"--port": self._listens, "--metrics-port": self._process.metrics_address}

    def start(self) -> None:
        """Begin as a standby."""
        self._process.log.info("stands by", store=self._where.text)
        if self._unused is not None:
            why = "the state is in etcd"
            self._process.log.warning("state_dir is not used", folder=str(self._unused), reason=why)
        self.leadership.start(self.address)

    async def elected(self) -> None:
        """Wait until this manager leads."""
        await self._elected.wait()

    def take_over(self, fresh_ts: int, rotate_s: float) -> tuple[EtcdJournal, int, Keys, Save]:
        """Return the journal, the cluster's start and the keys; called on a thread, once it leads.

        Raises LeadershipLostError where it leads no longer.
        """
        journal = EtcdJournal(self._etcd, self.leadership.fence, compact, self._unsure)
        while True:
            try:
                cluster_ts = journal.cluster_ts(fresh_ts)
                journal.keep_clock(self._clock)
                keys, save = shared_keys(journal, rotate_s)
                return journal, cluster_ts, keys, save
            except EtcdAwayError:
                self._wait()

    def read(self, journal: EtcdJournal) -> list[Record]:
        """Return every record, read on a thread as in `take_over`."""
        while True:
            try:
                return journal.read()
            except EtcdAwayError:
                self._wait()

    def _unsure(self) -> str:
        """Return why nothing may be written now; empty: it may."""
        if self.may_order:
            return ""
        return self.leadership.reason or "nobody can say whether this manager leads"

    def _wait(self) -> None:
        if self._left or self.leadership.standing is Standing.LOST:
            raise LeadershipLostError(self.leadership.reason)
        time.sleep(RETRY_S)

    def leave(self) -> None:
        """Give up the lead."""
        self.serves, self._left = False, True
        self.leadership.leave()
        self._etcd.close()

    # -- standing ----------------------------------------------------------------------------------

    def _changed(self, standing: Standing, reason: str) -> None:
        if standing is Standing.LOST:
            again = threading.Timer(ENDED_AFTER_S, self._start_again)
            again.daemon = True
            again.start()
        try:
            self._loop.call_soon_threadsafe(self._follow, standing, reason)
        except RuntimeError:
            # The loop has ended, and the process with it.
            return

    def _start_again(self) -> None:
        if not self._process.told:
            start_again(self.places)

    def _follow(self, standing: Standing, reason: str) -> None:
        log = self._process.log
        self._show(standing)
        if standing is Standing.LEADER:
            if not self._elected.is_set():
                log.info("leads", lease=self.leadership.fence.revision)
                self._elected.set()
                return
            log.info("leads for certain again")
            self.on_suspended("")
        elif standing is Standing.SUSPENDED:
            log.error("cannot say whether it leads, and orders nothing", reason=reason)
            self.on_suspended(reason)
            self.gate.end_calls()
        elif standing is Standing.LOST:
            log.error("leads no longer: stands by as a new process", reason=reason)
            self.serves = False
            self.gate.end_calls()
            self._process.end(LeadershipLostError(reason))
        elif standing is Standing.STANDBY:
            log.info("stands by", reason=reason)

    # -- measures ----------------------------------------------------------------------------------

    def _show(self, standing: Standing) -> None:
        leads = float(standing is Standing.LEADER)
        self._out.gauge("weft_leader", "1 where this Resource Manager leads", leads)
        suspended = float(standing is Standing.SUSPENDED)
        text = "1 while nobody can say whether this Resource Manager leads"
        self._out.gauge("weft_leader_suspended", text, suspended)
        first = standing is Standing.LEADER and not self._elected.is_set()
        text = "Times that this Resource Manager took over"
        self._out.count("weft_takeovers", text, float(first))

    def _took(self, call: str, took_s: float) -> None:
        text = "Time of a call to etcd, s"
        self._out.histogram("weft_etcd_call_seconds", text, (("call", call),)).observe(took_s)

    def _renewed(self, took_s: float) -> None:
        text = "When this Resource Manager's lease was last renewed, unix time, s"
        self._out.gauge("weft_lease_renewed_timestamp_seconds", text, time.time())


def start_again(places: dict[str, str]) -> None:
    """Become a new process that stands by: what this one knew is gone, whatever it was doing.

    It keeps its number, its output and its ports (`places`: flag -> host:port), so that whoever
    watches over it notices nothing.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    given = sys.orig_argv[1:]
    for flag, place in places.items():
        if port := place.rpartition(":")[2]:
            given += [flag, port]
    os.execv(sys.executable, [sys.executable, *given])
