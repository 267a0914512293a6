"""Which of several processes leads: by a lease of etcd, renewed from a thread of its own.

Of Resource Managers it is the one that serves; of routers, the one that moves guarantees between
members. A manager stands by until the election key is free, takes it with a lease, and leads for
as long as it knows that the lease holds: from the moment before a renewal was asked for, for the
lease's time less a margin, by a clock that runs on while the machine sleeps. Beyond that moment it
orders nothing (`weft.ha.leading` asks before every message), until etcd says how it stands:

* the key is still its own (etcd was away, or came back with what it had): nobody led meanwhile, so
  what it knows is the truth, and it goes on;
* it is not: another one leads or will. It forgets everything and stands by as a new process.

What it writes is held by the store on top of that (`rm.process.etcd_store`), and what it sent in
its last moment by its life: nodes and masters take no orders of an earlier life of the manager.
"""

import json
import math
import secrets
import threading
import time
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Any, NamedTuple

from weft.ha.etcd import Etcd, LeaseGoneError, created, get, joined, put
from weft.model.errors import WeftError

# One who stands by looks so often.
POLL_S = 0.4
RENEWALS_PER_LEASE = 4
# A leader does not count on this part of the lease's time.
LEASE_MARGIN_FRACTION = 0.15
# One renewal may take this part of the lease's time.
RENEWAL_LEASE_FRACTION = 0.25
# The election key's value has at most so many bytes.
DETAILS_BYTES_MAX = 4_000


class Standing(Enum):
    """How a Resource Manager stands to the others.

    * ALONE: its state is a file, and there are no others.
    * STANDBY: another one leads, or none does yet.
    * SUSPENDED: it led when etcd was last heard, and orders nothing meanwhile.
    * LOST: it led, and must do nothing more.
    """

    ALONE = "ALONE"
    STANDBY = "STANDBY"
    LEADER = "LEADER"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


class Fence(NamedTuple):
    """What shows that this process still leads: the election key, and the revision it came with."""

    key: bytes
    revision: int


def now_s() -> float:
    """Return a clock that nobody sets and that counts while the machine sleeps, s."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leadership:
    """Stands by, leads, and says when it does not any more.

    `on_change` is called on the thread of this with every new standing and why.
    """

    def __init__(
        self,
        etcd: Etcd,
        lease_s: float,
        on_change: Callable[[Standing, str], None],
        on_renewed: Callable[[float], None] = lambda took_s: None,
        suspended_s_max: float = inf,
        key: str = "leader",
    ) -> None:
        """`lease_s`: a leader that is gone is replaced after so long; `key` is the election's.

        `suspended_s_max`: after so long without etcd a leader does not go on, though nobody led
        meanwhile: it heard of nodes and masters too long ago.
        """
        self._suspended_s_max = suspended_s_max
        self._etcd = etcd
        self._lease_s = lease_s
        self._on_change = on_change
        self._on_renewed = on_renewed
        self._key = joined((etcd.settings.prefix, key))
        self._name = secrets.token_hex(8)
        self._lease = 0
        self._leads_until_s = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.standing = Standing.STANDBY
        self.reason = "no leader is known yet"
        # The one who leads says this of itself.
        self.leader: dict[str, Any] = {}
        self.fence = Fence(self._key, 0)
        # It is the unix time when this standing began.
        self.since_s = time.time()

    # -- what others ask ---------------------------------------------------------------------------

    @property
    def may_order(self) -> bool:
        """Whether it leads at this very moment."""
        known = self.standing is Standing.LEADER and not self._ended.is_set()
        return known and now_s() < self._leads_until_s

    @property
    def may_answer(self) -> bool:
        """Whether what it knows is what is known: it leads, or etcd is away and nobody can."""
        return self.may_order or self.standing is Standing.SUSPENDED

    @property
    def suspended_s(self) -> float:
        """Return for how long it has not led for certain, s."""
        return max(0.0, now_s() - self._leads_until_s)

    # -- life --------------------------------------------------------------------------------------

    def start(self, address: str) -> None:
        """Begin to stand by; `address` is where others reach this manager when it leads."""
        said = json.dumps({"address": address, "since": time.time(), "name": self._name})
        self._value = said.encode()
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """End, and let another one lead at once."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self._lease_s)
        if self._lease:
            try:
                self._etcd.revoke(self._lease)
            except WeftError:
                # The lease ends by itself.
                return

    def _run(self) -> None:
        wait_s = POLL_S
        while not self._ended.is_set():
            try:
                if self.standing is Standing.STANDBY:
                    wait_s = self._stand_by()
                else:
                    wait_s = self._renew()
            except WeftError as error:
                # Etcd is away, or refuses: a password, a right.
                wait_s = self._away(str(error))
            except Exception as error:
                # This is a bug: who does not renew must not think that it leads.
                self._set(Standing.LOST, f"{type(error).__name__}: {error}")
            if self.standing is Standing.LOST:
                return
            self._ended.wait(wait_s)

    def _stand_by(self) -> float:
        found, _ = self._etcd.get(self._key)
        if found is not None and bytes(found.value) == self._value:
            # It is of an earlier try, whose answer was lost: nobody renews it.
            self._etcd.revoke(found.lease)
            return 0.0
        if found is not None:
            self._follow(bytes(found.value))
            return POLL_S
        self._set(Standing.STANDBY, "nobody leads")
        began_s = now_s()
        lease = self._etcd.grant(math.ceil(self._lease_s))
        taken = [put(self._key, self._value, lease)]
        answer = self._etcd.transact([created(self._key, 0)], taken, [get(self._key)])
        revision = answer.revision
        if not answer.succeeded:
            held = answer.found[0]
            if not held or bytes(held[0].value) != self._value or held[0].lease != lease:
                self._etcd.revoke(lease)
                return 0.0
            # This very change was made by way of another endpoint.
            revision = held[0].create_revision
        self._lease, self.fence = lease, Fence(self._key, revision)
        self._lasts(began_s, self._lease_s)
        self.leader = json.loads(self._value)
        self._set(Standing.LEADER, "")
        return self._pause_s

    @property
    def _pause_s(self) -> float:
        return self._lease_s / RENEWALS_PER_LEASE

    def _renew(self) -> float:
        began_s = now_s()
        within_s = max(0.2, self._lease_s * RENEWAL_LEASE_FRACTION)
        try:
            left_s = self._etcd.renew(self._lease, within_s)
        except LeaseGoneError:
            left_s = 0.0
        if left_s <= 0:
            self._set(Standing.LOST, "its lease ended")
            return 0.0
        # A lease may outlive its key: somebody removed it, or put a backup back.
        found, _ = self._etcd.get(self._key, within_s)
        if found is None or found.create_revision != self.fence.revision:
            self._set(Standing.LOST, "its election key is gone: another one leads, or will")
            return 0.0
        if self.suspended_s > self._suspended_s_max:
            self._set(Standing.LOST, f"no answer of etcd for {self.suspended_s:.0f} s")
            return 0.0
        self._lasts(began_s, left_s)
        self._on_renewed(now_s() - began_s)
        self._set(Standing.LEADER, "")
        return self._pause_s

    def _lasts(self, began_s: float, left_s: float) -> None:
        self._leads_until_s = began_s + min(self._lease_s, left_s) * (1 - LEASE_MARGIN_FRACTION)

    def _away(self, why: str) -> float:
        """Return etcd does not answer: nobody can be told that they lead, this one neither."""
        if self.standing is Standing.LEADER and now_s() >= self._leads_until_s:
            self._set(Standing.SUSPENDED, why)
        elif self.standing is not Standing.LEADER:
            self._set(self.standing, why)
        return min(POLL_S, self._pause_s)

    def _follow(self, value: bytes) -> None:
        try:
            told = json.loads(value[:DETAILS_BYTES_MAX])
            self.leader = {"address": str(told["address"]), "since": float(told["since"])}
        except (ValueError, KeyError, TypeError, OverflowError):
            self.leader = {}
        self._set(Standing.STANDBY, f"{self.leader.get('address', 'another one')} leads")

    def _set(self, standing: Standing, reason: str) -> None:
        if (standing, reason) == (self.standing, self.reason):
            return
        if standing is not self.standing:
            self.since_s = time.time()
        self.standing, self.reason = standing, reason
        self._on_change(standing, reason)
