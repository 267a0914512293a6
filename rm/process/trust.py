"""Whose word the Resource Manager takes: by the certificate and the tokens that a stream showed.

A master speaks for its own attempt, a node for itself. Tokens hold without certificates as well:
who shows a node's token is the node, and who does not has to register, which it may where the name
is free (`rm.process.owners`).
"""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rm.process.etcd_store import EtcdJournal
from rm.state.books import Books
from weft.ha.etcd import EtcdAwayError
from weft.model.errors import InputError, WeftError
from weft.model.ids import AttemptId, ContainerId, NodeId, app_of_attempt
from weft.protocol.access import ANY_NODE, Role
from weft.protocol.messages import (
    Address,
    AttemptAccepted,
    ContainersGranted,
    NodeAccepted,
    NodeAnswered,
    NodeRegistered,
)
from weft.protocol.requests import ContainerReport
from weft.runtime.kept_file import read_kept, write_kept
from weft.wire.outbound_queues import Lane
from weft.wire.tokens import FILE, Keys, KeysTold, Kind, Shown

STREAM_SUBJECTS_MAX = 100_000
# With more names of nodes, those whose stream is closed are forgotten.
BOUND_NODES_MAX = 100_000


Save = Callable[[Keys], str]


def shared_keys(journal: EtcdJournal, rotate_s: float) -> tuple[Keys, Save]:
    """Return the keys that managers share, or new ones, and how to keep them; raises WeftError.

    To keep them answers why that cannot be done now.
    """
    saved = journal.saved_keys()
    try:
        keys = Keys(time.time(), secrets.token_bytes, rotate_s, saved)
    except InputError as error:
        raise InputError(f"etcd: {error.place}", error.problem) from None

    def save(keys: Keys) -> str:
        nonlocal saved
        data = keys.data()
        if data == saved:
            return ""
        try:
            journal.save_keys(data)
        except EtcdAwayError as error:
            return str(error)
        saved = data
        return ""

    if saved is None and (why := save(keys)):
        # A token that the next leader does not know is worth nothing.
        raise EtcdAwayError(why)
    return keys, save


def open_keys(folder: Path | None, rotate_s: float) -> tuple[Keys, Save]:
    """Return the keys in a state folder, or new ones, and how to keep them; raises InputError.

    To keep them answers why that cannot be done now (a full disk); empty: they are kept. Keys that
    are not hold all the same, until the manager ends.
    """
    if folder is None:
        return Keys(time.time(), secrets.token_bytes, rotate_s), lambda keys: ""
    path = folder / FILE
    saved = None

    def save(keys: Keys) -> str:
        nonlocal saved
        data = keys.data()
        if data == saved:
            return ""
        try:
            write_kept(path, json.dumps(data).encode())
        except WeftError as error:
            return str(error)
        saved = data
        return ""

    kept = read_kept(path)
    if kept is not None:
        try:
            saved = json.loads(kept)
        except ValueError:
            raise InputError(
                str(path), "cannot be read as keys; without it new ones are made"
            ) from None
        try:
            keys = Keys(time.time(), secrets.token_bytes, rotate_s, saved if saved else {})
        except InputError as error:
            where = f"{path}: {error.place}"
            raise InputError(
                where, f"{error.problem}; without the file new ones are made"
            ) from None
    else:
        keys = Keys(time.time(), secrets.token_bytes, rotate_s)
    save(keys)
    return keys, save


class Trust:
    """Gives tokens and asks for them."""

    def __init__(self, keys: Keys, books: Books) -> None:
        self.keys = keys
        self._books = books
        self._lane_of_node: dict[NodeId, Lane] = {}
        self._sweep_at = BOUND_NODES_MAX

    @property
    def stamp(self) -> tuple[int, int]:
        """The cluster's start, ms since the epoch, and the life of this manager, the first 1."""
        return self._books.cluster_ts, self._books.epoch + 1

    # -- asking ------------------------------------------------------------------------------------

    def show(
        self, lane: Lane, shown: Shown, kind: Kind, refuse: Callable[[InputError], None]
    ) -> None:
        """Let a stream that shows tokens of its kind speak for what they name from now on."""
        for token in shown.tokens:
            try:
                claim = self.keys.true(token, kind, time.time())
                if kind is Kind.NODE:
                    if lane.who.may_be(claim.name):
                        self.bind(lane, claim.name)
                else:
                    self._add(lane, claim.number)
            except InputError as error:
                refuse(error)

    def attempt_problem(self, lane: Lane, attempt: AttemptId) -> str:
        """Return why a stream may not speak for an attempt; empty: it may.

        For a master that its job brought along speaks the gateway. An attempt of no application is
        told so by the core.
        """
        if attempt in lane.subjects:
            return ""
        app = self._books.apps.get(app_of_attempt(attempt))
        if app is None:
            return ""
        if app.job.master is not None and (not lane.who.known or lane.who.has(Role.GATEWAY)):
            return ""
        return f"no token of attempt {attempt} was shown"

    def node_problem(self, lane: Lane, message: Any) -> str:
        """Return why a stream may not speak for a message's node; empty: it may (register)."""
        name, who = message.node_id, lane.who
        if name in lane.subjects:
            return ""
        if who.known:
            if not who.may_be(name):
                return f"{who} is not {name!r}"
            if (Role.NODE, ANY_NODE) not in who.roles:
                # The certificate names this very node.
                self.bind(lane, name)
                return ""
        if name in self._lane_of_node and not isinstance(message, NodeRegistered):
            return f"no token of {name!r} was shown"
        return ""

    def bind(self, lane: Lane, name: NodeId) -> None:
        """Let this stream, and no other, speak for a node from now on."""
        old = self._lane_of_node.get(name)
        if old is not None:
            old.subjects.pop(name, None)
        self._lane_of_node[name] = lane
        self._add(lane, name)
        if len(self._lane_of_node) > self._sweep_at:
            self._lane_of_node = {
                name: of for name, of in self._lane_of_node.items() if not of.closed
            }
            self._sweep_at = max(BOUND_NODES_MAX, 2 * len(self._lane_of_node))

    def _add(self, lane: Lane, subject: Any) -> None:
        lane.subjects[subject] = None
        if len(lane.subjects) > STREAM_SUBJECTS_MAX:
            del lane.subjects[next(iter(lane.subjects))]

    # -- giving ------------------------------------------------------------------------------------

    def along(self, message: Any) -> list[Shown | KeysTold]:
        """Return what goes before a message on its stream."""
        now_s = time.time()
        if isinstance(message, ContainersGranted):
            given = [(one.container_id, one.node_id, one.count) for one in message.containers]
            return self._of_containers(given, message.attempt_id)
        if isinstance(message, AttemptAccepted):
            granted = [(one.container_id, one.node_id, 1) for one in message.held]
            held = self._held(message.attempt_id)
            return self._of_containers([*granted, *held], message.attempt_id)
        if isinstance(message, NodeAccepted):
            return self.of_node(message.node_id)
        if isinstance(message, NodeAnswered) and message.start:
            own = [one.attempt_id for one in message.start if not one.command]
            return [Shown(tuple(self.keys.attempt(one, now_s) for one in own))] if own else []
        return []

    def _of_containers(
        self, held: list[tuple[ContainerId, NodeId, int]], attempt: AttemptId
    ) -> list[Shown | KeysTold]:
        """Return tokens of containers for an attempt, perhaps not the one they were granted to.

        One each for so many containers with consecutive ids as were granted together.
        """
        now_s, sign = time.time(), self.keys.container
        if not held:
            return []
        return [
            Shown(tuple(sign(one, node, now_s, attempt=attempt, count=n) for one, node, n in held))
        ]

    def _held(self, attempt: AttemptId) -> list[tuple[ContainerId, NodeId, int]]:
        """Return each container of an attempt's application; none if the attempt is over."""
        app = self._books.apps.get(app_of_attempt(attempt))
        if app is None or app.attempt is None or app.attempt.attempt_id != attempt:
            return []
        return [
            (number, held.node.node_id, 1)
            for one in app.attempts
            for number, held in one.holdings.runs()
        ]

    def logs(self, reports: Sequence[ContainerReport]) -> list[bytes]:
        """Return leave to read the logs of containers, for whoever may see them."""
        now_s, sign = time.time(), self.keys.container
        return [sign(one.container_id, one.node_id, now_s, Kind.LOG) for one in reports]

    def of_node(self, node: NodeId) -> list[Shown | KeysTold]:
        """Return a node's token and keys."""
        return [Shown((self.keys.node(node, time.time()),)), self.keys.of_node(node)]

    def renewed(self, address: Address) -> list[Shown | KeysTold]:
        """Return what a node or master is given when there is a new key."""
        kind, _, name = address.partition(":")
        if kind == "node":
            return self.of_node(name)
        if kind == "am":
            attempt = int(name)
            token = self.keys.attempt(attempt, time.time())
            return [Shown((token,)), *self._of_containers(self._held(attempt), attempt)]
        return []
