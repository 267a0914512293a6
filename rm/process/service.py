"""The Resource Manager on the wire: streams and calls become events, effects become messages."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rm.process.idling import Hearing
from rm.process.metrics import ManagerMetrics
from rm.process.owners import Owners
from rm.process.rate import Rate
from rm.process.trust import Trust
from rm.process.unread import Unread
from rm.process.watching import Watching
from weft.model.errors import InputError
from weft.protocol.access import TRUSTED, Caller, Role
from weft.protocol.effects import ClientRequested, NodesIdle, ReportsWaited
from weft.protocol.facts import Fact, RunFact
from weft.protocol.messages import (
    MANAGER,
    Address,
    AttemptStopped,
    AttemptUnregistered,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    client_address,
    master_address,
    node_address,
)
from weft.protocol.requests import (
    READS,
    ClientRequest,
    GetManager,
    GetSettings,
    ManagerReport,
    ManagerSettings,
    NewApplication,
    Refused,
    SubmitApplication,
)
from weft.runtime.interfaces import Outside
from weft.runtime.process import Process
from weft.runtime.shell import Shell
from weft.wire import rules
from weft.wire.idle import IdleTold
from weft.wire.joining import acknowledges
from weft.wire.outbound_queues import Lane
from weft.wire.server import Server
from weft.wire.services import add_client_service, add_master_service, add_tracker_service
from weft.wire.tokens import Keys, Kind, Shown
from weft.wire.validator import Gate

# A client that was not answered for so long is told so.
ANSWER_S = 60.0
# The submissions of so many seconds may come at once.
SUBMIT_BURST_S = 10.0
# So many submissions a second are taken over time, and so many seconds' worth at once.
SUBMISSIONS_PER_S = 1000.0
# One stream answers at most so many nodes and masters.
STREAM_ROUTES_MAX = 100_000
# A stream that was not heard for so many heartbeats may have ended.
SILENCE_BEATS = 3
SILENCE_MIN_S = 2.0
# Of wall clock, and of a heartbeat: what only acknowledges waits so long for more to leave with it.
ACKNOWLEDGE_S, ACKNOWLEDGE_BEATS = 0.05, 0.05
CLIENT = client_address("")
# Nothing comes before the service is attached.
_NOBODY: Any = None
_UNTOLD = ManagerSettings(())


class ManagerService(Outside):
    """Routes messages to the streams that their receivers were last heard on."""

    def __init__(
        self,
        process: Process,
        server: Server,
        d: int = 0,
        submissions_per_s: float = 0.0,
        heartbeat_s: float = 1.0,
        report: Callable[[], ManagerReport] | None = None,
        settings: ManagerSettings = _UNTOLD,
    ) -> None:
        """`d`: the number of the cluster's resource types. 0 submissions a second: no bound.

        `heartbeat_s`: the pace of nodes on the cluster's clock. `report` says how this manager
        stands to others, and `settings` what it runs with.
        """
        self._settings = settings
        self._trust: Trust = _NOBODY
        self._report = report or (lambda: ManagerReport(server.address, "ALONE"))
        # It is the cluster's start, and the life of this manager.
        self._stamp = (0, 0)
        self._process = process
        self._d = d
        self._gate = gate = Gate(process.tell_refused, process.count_refused)
        self._metrics = ManagerMetrics(process.exposition)
        self._routes: dict[Address, Lane] = {}
        self._behind: dict[Lane, set[Address]] = {}
        beat_s = process.clock.wall_s(heartbeat_s)
        self._owners = Owners(max(SILENCE_MIN_S, SILENCE_BEATS * beat_s))
        self._acknowledge_s = min(ACKNOWLEDGE_S, ACKNOWLEDGE_BEATS * beat_s)
        self._unread = Unread(self._waited)
        self._clients: dict[Address, asyncio.Future[Any]] = {}
        self._tokens = itertools.count(1)
        # The requests of these clients change nothing.
        self._reading: set[Address] = set()
        self._rate = Rate(submissions_per_s, SUBMIT_BURST_S * submissions_per_s, time.monotonic)
        # It says why nothing new can be accepted: the store takes nothing.
        self._refusing = ""
        # It says why nothing is answered: nobody can say whether this manager leads.
        self._suspended = ""
        self._watching = Watching()
        self._shell: Shell | None = None
        add_client_service(
            server,
            self.ask,
            self._watching.watch,
            gate,
            lambda reports: self._trust.logs(reports),  # noqa: PLW0108 - it is another by then
        )
        add_tracker_service(server, self._from_nodes, self._closed, gate, lambda: self._stamp)
        add_master_service(server, self._from_masters, self._closed, gate, lambda: self._stamp)

    def attach(self, shell: Shell, trust: Trust) -> None:
        """Send what arrives from now on to the core; before, it is dropped."""
        self._trust = trust
        self._shell = shell
        self._process.spawn(self._unread.watch())

    def _waited(self, for_s: float) -> None:
        """Tell the core that nodes and masters were not heard, for so long by the wall clock."""
        if self._shell is not None:
            scale = self._process.clock.time_scale
            self._shell.post(MANAGER, ReportsWaited(for_s * scale))

    def user_of(self, text: str) -> tuple[Role, str]:
        """Return the role and name of a user's token; raises InputError."""
        if self._trust is _NOBODY:
            raise InputError("token", "cannot be checked here: another Resource Manager leads")
        return self._trust.keys.true_user(text, time.time())

    @property
    def life(self) -> int:
        """Return the number of this manager's life once it serves, the first being 1."""
        return self._stamp[1]

    @property
    def refusing(self) -> str:
        """Return why nothing new is accepted; empty: it is."""
        return self._refusing or self._suspended

    def suspend(self, reason: str) -> None:
        """Accept nothing new for a reason, or everything again where it is empty."""
        self._suspended = reason

    # -- in ----------------------------------------------------------------------------------------

    def _from_nodes(self, lane: Lane, batch: list[Any]) -> Awaitable[None] | None:
        shell = self._shell
        if shell is None:
            return None
        now_s = time.monotonic()
        for message in batch:
            if isinstance(message, Shown):
                refuse = partial(self._gate.refuse, "Token", lane.peer)
                self._trust.show(lane, message, Kind.NODE, refuse)
                continue
            if isinstance(message, IdleTold):
                self._from_idle(lane, message, now_s)
                continue
            if self._admits(lane, message, now_s):
                shell.post(MANAGER, message)
        return self._unread.held(lane, shell.handled())

    def _admits(self, lane: Lane, message: Any, now_s: float) -> bool:
        """Return whether a node's message may go to the core; else say what its sender lacks."""
        error = rules.problem_of(message, self._d)
        if error is None and (problem := self._trust.node_problem(lane, message)):
            error = InputError("node_id", problem)
            if isinstance(message, NodeHeartbeated) and lane.who.may_be(message.node_id):
                # Whoever is that node registers again.
                lane.send((NodeAnswered(message.node_id, 0, resync=True),))
        if error is None:
            shown = message.node_id in lane.subjects
            passes = self._owners.hear(lane, message, now_s, shown=shown)
            if passes is True:
                if isinstance(message, NodeRegistered):
                    self._trust.bind(lane, message.node_id)
                self._learn(node_address(message.node_id), lane)
                return True
            if passes is not False:
                lane.send((passes,))
                if passes.shutdown:
                    error = InputError("node_id", passes.shutdown)
                    self._gate.refuse(type(message).__name__, lane.peer, error)
            elif isinstance(message, NodeRegistered):
                error = InputError(
                    "node_id", f"{message.node_id!r} is registered on another stream"
                )
                self._gate.refuse(type(message).__name__, lane.peer, error)
            return False
        self._gate.refuse(type(message).__name__, lane.peer, error)
        if isinstance(message, NodeRegistered):
            # The node would repeat itself for ever.
            refused = f"its registration was refused: {error}"
            lane.send((NodeAnswered(message.node_id, 0, shutdown=refused),))
        return False

    def _from_idle(self, lane: Lane, told: IdleTold, now_s: float) -> None:
        """Post heartbeats that say nothing.

        Those of nodes that are not this stream's are checked one by one, as whole ones are.
        """
        assert self._shell is not None
        hearing = Hearing(
            lane,
            told,
            self._owners.hear_idle(lane, told.node_ids, now_s),
            lambda name: self._admits(lane, NodeHeartbeated(name, 0), now_s),
        )
        self._metrics.idle(len(hearing.heard))
        event = NodesIdle(tuple(hearing.heard))
        self._shell.post(MANAGER, event, hearing.collect, hearing.answer)

    def _from_masters(self, lane: Lane, batch: list[Any]) -> Awaitable[None] | None:
        shell = self._shell
        if shell is None:
            return None
        for message in batch:
            if isinstance(message, Shown):
                refuse = partial(self._gate.refuse, "Token", lane.peer)
                self._trust.show(lane, message, Kind.ATTEMPT, refuse)
            elif self._gate.passes(message, self._d, lane.peer):
                if problem := self._trust.attempt_problem(lane, message.attempt_id):
                    error = InputError("attempt_id", problem)
                    self._gate.refuse(type(message).__name__, lane.peer, error)
                    continue
                self._learn(master_address(message.attempt_id), lane)
                shell.post(MANAGER, message)
        return self._unread.held(lane, shell.handled())

    def _learn(self, address: Address, lane: Lane) -> None:
        old = self._routes.get(address)
        if old is lane or len(self._behind.get(lane, ())) >= STREAM_ROUTES_MAX:
            return
        if old is not None:
            self._behind.get(old, set()).discard(address)
        self._routes[address] = lane
        self._behind.setdefault(lane, set()).add(address)

    def _forget(self, address: Address) -> None:
        """Forget the route to a master that is gone for good; it would be learned again."""
        lane = self._routes.pop(address, None)
        if lane is not None:
            self._behind.get(lane, set()).discard(address)

    def _closed(self, lane: Lane) -> None:
        self._owners.closed(lane)
        for address in self._behind.pop(lane, ()):
            self._routes.pop(address, None)

    async def ask(self, request: ClientRequest, caller: Caller = TRUSTED) -> Any:
        """Put a client's request to the core and wait for the answer."""
        if isinstance(request, GetManager):
            return replace(self._report(), time_scale=self._process.clock.time_scale)
        if isinstance(request, GetSettings):
            return self._settings
        if self._shell is None:
            return Refused("unavailable", "", "the Resource Manager is starting")
        if isinstance(request, SubmitApplication) and not (caller.everything or request.job.user):
            request = replace(request, job=replace(request.job, user=caller.user))
        reads = type(request) in READS
        if (problem := self.refusing) and not reads:
            why = f"nothing new is accepted until the state can be written again: {problem}"
            return Refused("unavailable", "", why)
        if isinstance(request, SubmitApplication | NewApplication):
            wait_s = self._rate.wait_s()
            if wait_s:
                why = f"too many submissions at a time; try again in {wait_s:.3f} s"
                return Refused("resource_exhausted", "", why)
        token = str(next(self._tokens))
        address = client_address(token)
        if reads:
            self._reading.add(address)
        answer = self._clients[address] = asyncio.get_running_loop().create_future()
        self._shell.post(MANAGER, ClientRequested(token, request, caller))
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            return Refused("unavailable", "", f"no answer within {ANSWER_S:g} s")
        finally:
            self._clients.pop(address, None)
            self._reading.discard(address)

    async def turn_keys(self, save: Callable[[Keys], str], every_s: float) -> None:
        """Make new keys when it is time, and give whoever is connected what it needs of them."""
        while True:
            await asyncio.sleep(every_s)
            turned = self._trust.keys.turn(time.time())
            if why := await asyncio.to_thread(save, self._trust.keys):
                self._process.log.warning("after a restart tokens do not hold", reason=why)
            if not turned:
                continue
            self._process.log.info("a new key signs tokens soon")
            for lane, addresses in list(self._behind.items()):
                lane.send([each for one in addresses for each in self._trust.renewed(one)])

    # -- out ---------------------------------------------------------------------------------------

    def send(self, sends: Sequence[tuple[Address, Any]]) -> None:
        """Send messages grouped by stream: a round's messages to one process leave in one batch."""
        self._process.flush()
        if not self._stamp[1]:
            # What this life says comes after its start was persisted.
            self._stamp = self._trust.stamp
        batches: dict[Lane, list[Any]] = {}
        lost = 0
        for to, message in sends:
            lane = self._routes.get(to)
            if lane is not None:
                batch = batches.setdefault(lane, [])
                batch.extend(self._trust.along(message))
                batch.append(message)
                if isinstance(message, AttemptUnregistered | AttemptStopped):
                    self._forget(to)
            elif to.startswith(CLIENT):
                waiting = self._clients.get(to)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            else:
                lost += 1
        for lane, batch in batches.items():
            lane.send(batch, self._acknowledge_s if all(map(acknowledges, batch)) else 0.0)
        if lost:
            text = "Messages to peers that are not connected"
            self._process.exposition.count("weft_messages_undeliverable", text, lost)

    def note(self, core: Address, fact: Fact | RunFact, now: float) -> None:
        """Log, count, and tell the watchers, of each container of a run by itself."""
        self._process.note(fact, now)
        self._metrics.note(fact, now)
        self._watching.note(fact, now)

    def stalled(self, reason: str) -> None:
        """Refuse changes while the journal takes nothing; an empty reason ends it."""
        self._refusing = reason
        text = "1 while the state cannot be written and submissions are refused"
        self._process.exposition.gauge("weft_store_stalled", text, float(bool(reason)))
        if reason:
            self._process.log.error("nothing new is accepted", reason=reason)
            why = f"{reason}; it may be accepted yet, so look before you repeat it under a new name"
            for address, waiting in self._clients.items():
                if address not in self._reading and not waiting.done():
                    waiting.set_result(Refused("unavailable", "", why))
        else:
            self._process.log.info("the state can be written again")

    def may_pass(self, to: Address) -> bool:
        """Return whether a message answers a read: it may leave before the journal is written."""
        return to in self._reading

    def failed(self, core: Address, error: Exception) -> None:
        """End the process: with books that may be wrong it must not go on; the journal restores."""
        self._process.log.error("the core failed", exc_info=error)
        self._process.end(error)
