"""The tokens of a node manager process: its nodes', its masters', and keys to check orders by."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from weft.ids import AttemptId, ContainerId, NodeId, app_of_attempt, app_of_container
from weft.messages import (
    ItemAnswer,
    QueryContainers,
    StartAnswered,
    StartContainers,
    TaskLaunch,
    launches_of,
    started_by,
)
from weft.wire import tokens
from weft.wire.tokens import KeyTold, Kind, Shown

MASTERS_MAX = 20_000  # tokens of masters that are kept
NOT_HELD = "no such container runs here"

Holds = Callable[[NodeId, ContainerId], bool]


class NodeTokens:
    """What the Resource Manager gave this process."""

    def __init__(self, holds: Holds, clock: Callable[[], float] = time.time) -> None:
        """`holds` says whether a node holds a container now; `clock` is unix time, s."""
        self._holds = holds
        self._clock = clock
        self._nodes: dict[NodeId, bytes] = {}
        self._masters: dict[AttemptId, bytes] = {}
        self._keys: dict[NodeId, dict[int, bytes]] = {}

    def take(self, given: Shown | KeyTold) -> None:
        """Keep what the manager gives."""
        if isinstance(given, KeyTold):
            known = self._keys.setdefault(given.node_id, {})
            known[given.number] = given.secret
            while len(known) > tokens.KEYS_MAX:
                del known[min(known)]
            return
        for token in given.tokens:
            claim = tokens.read(token)
            if claim.kind == Kind.NODE:
                self._nodes[claim.name] = token
            elif claim.kind == Kind.ATTEMPT:
                self._masters[claim.number] = token
                if len(self._masters) > MASTERS_MAX:
                    del self._masters[next(iter(self._masters))]

    def greeting(self) -> list[Shown]:
        """What a new stream to the manager begins with."""
        return [Shown(tuple(self._nodes.values()))] if self._nodes else []

    def master(self, attempt: AttemptId) -> bytes:
        """The token of a master that is to start; empty: none was given."""
        return self._masters.get(attempt, b"")

    def may_read(self, node: NodeId, container: ContainerId, token: bytes) -> str:
        """Why a token is no leave to read a container's logs; empty: it is."""
        keys = self._keys.get(node, {})
        return tokens.container_problem(token, container, keys, self._clock(), Kind.LOG)

    def sift(
        self, orders: Sequence[Any], shown: Sequence[bytes], refuse: Callable[[str, str], None]
    ) -> tuple[list[Any], list[StartAnswered]]:
        """The orders that may be carried out, and answers for what may not.

        A container needs its token; one that a node neither holds nor shall start needs none, as
        nothing is done there. Nodes that were told no key (a manager of an older version) take all.
        """
        by_container = {tokens.numbered(token)[1]: token for token in shown}
        good, answers = [], []
        for order in orders:
            keys = self._keys.get(order.node_id)
            if keys is None:
                good.append(order)
                continue
            kept, refused = self._split(order, keys, by_container, refuse)
            if kept is not None:
                good.append(kept)
            if refused:
                answers.append(StartAnswered(order.node_id, order.attempt_id, tuple(refused)))
        return good, answers

    def _split(
        self,
        order: Any,
        keys: dict[int, bytes],
        by_container: dict[ContainerId, bytes],
        refuse: Callable[[str, str], None],
    ) -> tuple[Any, list[ItemAnswer]]:
        # a master may order what an earlier attempt of its application left running
        app = app_of_attempt(order.attempt_id)
        starts = isinstance(order, StartContainers)
        items = order.items if starts else order.containers
        singles: Sequence[Any] = items
        if starts:
            singles = self._apart(order, keys, by_container)
        kept, refused = [], []
        for item in singles:
            container = item.container_id if starts else item
            token = by_container.get(container, b"")
            held = self._holds(order.node_id, container)
            if not token and not held and not starts:
                error = NOT_HELD if isinstance(order, QueryContainers) else ""
                refused.append(ItemAnswer(container, error=error))
                continue
            problem = self._problem(token, container, keys, held)
            if not problem and app_of_container(container) != app:
                problem = f"container {container} is not of the application that orders it"
            if not problem:
                kept.append(item)
                continue
            refuse(type(order).__name__, problem)
            stage, task = (item.stage, item.task) if starts else (-1, -1)
            refused.append(ItemAnswer(container, stage, task, f"refused: {problem}"))
        if len(kept) == len(singles) == len(items):
            return order, refused
        if not kept:
            return None, refused
        kind = type(order)
        more = (order.boot,) if starts else ()
        return kind(order.attempt_id, order.node_id, tuple(kept), *more), refused

    def _apart(
        self, order: StartContainers, keys: dict[int, bytes], shown: dict[ContainerId, bytes]
    ) -> list[TaskLaunch]:
        """What an order starts: runs of which every container may start, and all else singly."""

        app = app_of_attempt(order.attempt_id)

        def passes(number: ContainerId) -> bool:
            held = self._holds(order.node_id, number)
            return app_of_container(number) == app and not self._problem(
                shown.get(number, b""), number, keys, held
            )

        items: list[TaskLaunch] = []
        for item in order.items:
            if item.tasks and all(map(passes, started_by(item))):
                items.append(item)
            else:
                items.extend(launches_of(item))
        return items

    def _problem(
        self, token: bytes, container: ContainerId, keys: dict[int, bytes], held: bool
    ) -> str:
        """What is wrong with a container's token; one that runs may outlive it."""
        if not token:
            return f"no token of container {container} was shown"
        return tokens.container_problem(token, container, keys, 0.0 if held else self._clock())
