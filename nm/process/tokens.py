"""The tokens of a node manager process: its nodes', its masters', and keys to check orders by."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.model.ids import AttemptId, ContainerId, NodeId, app_of_attempt, app_of_container
from weft.protocol.messages import (
    NO_TOKEN,
    ItemAnswer,
    QueryContainers,
    StartAnswered,
    StartContainers,
    TaskLaunch,
    launch_of,
    started_by,
)
from weft.wire import tokens
from weft.wire.tokens import KeysTold, Kind, Shown, TimeTold

MASTER_TOKENS_MAX = 20_000
# After so many tokens of one call that let no container of a run start, no more are looked at.
UNTRUE_TOKENS_MAX = 1_000
NOT_HELD = "no such container runs here"

Holds = Callable[[NodeId, ContainerId], bool]


class NodeTokens:
    """What the Resource Manager gave this process."""

    def __init__(
        self,
        holds: Holds,
        clock: Callable[[], float] = time.time,
        since_start: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take `holds`, which says whether a node holds a container now.

        `clock` is unix time, s, and counts only until the manager sent its own: hosts' clocks
        differ. `since_start` never jumps.
        """
        self._holds = holds
        self._clock = clock
        self._since_start = since_start
        # The manager's time when `since_start` was 0.
        self._began_s: float | None = None
        self._nodes: dict[NodeId, bytes] = {}
        self._masters: dict[AttemptId, bytes] = {}
        self._keys: dict[NodeId, dict[int, bytes]] = {}

    def take(self, given: Shown | KeysTold | TimeTold) -> None:
        """Keep what the manager gives. Keys are all there are: it may have lost those before."""
        if isinstance(given, TimeTold):
            self._began_s = given.now_s - self._since_start()
            return
        if isinstance(given, KeysTold):
            self._keys[given.node_id] = dict(given.keys)
            return
        for token in given.tokens:
            claim = tokens.read(token)
            if claim.kind == Kind.NODE:
                self._nodes[claim.name] = token
            elif claim.kind == Kind.ATTEMPT:
                self._masters[claim.number] = token
                if len(self._masters) > MASTER_TOKENS_MAX:
                    del self._masters[next(iter(self._masters))]

    def greeting(self) -> list[Shown]:
        """Return what a new stream to the manager begins with."""
        return [Shown(tuple(self._nodes.values()))] if self._nodes else []

    def _now_s(self) -> float:
        """Return the manager's time, unix, s."""
        return self._clock() if self._began_s is None else self._began_s + self._since_start()

    def master(self, attempt: AttemptId) -> bytes:
        """Return the token of a master that is to start; empty: none was given."""
        return self._masters.get(attempt, b"")

    def may_read(self, node: NodeId, container: ContainerId, token: bytes) -> str:
        """Return why a token is no leave to read a container's logs; empty: it is."""
        keys = self._keys.get(node, {})
        return tokens.container_problem(token, container, keys, self._now_s(), Kind.LOG)

    def sift(
        self, orders: Sequence[Any], shown: Sequence[bytes], refuse: Callable[[str, str], None]
    ) -> tuple[list[Any], list[StartAnswered]]:
        """Return the orders that may be carried out, and answers for what may not.

        A container needs its token, given to the attempt that orders; one that a node neither holds
        nor shall start needs none, as nothing is done there. Nodes that received no key (a manager
        of an older version) take all.
        """
        given = _Given(shown)
        good, answers = [], []
        for order in orders:
            keys = self._keys.get(order.node_id)
            if keys is None:
                good.append(order)
                continue
            kept, refused = self._split(order, keys, given, refuse)
            if kept is not None:
                good.append(kept)
            if refused:
                answers.append(StartAnswered(order.node_id, order.attempt_id, tuple(refused)))
        return good, answers

    def _split(
        self,
        order: Any,
        keys: dict[int, bytes],
        given: "_Given",
        refuse: Callable[[str, str], None],
    ) -> tuple[Any, list[ItemAnswer]]:
        # a master may order what an earlier attempt of its application left running
        app = app_of_attempt(order.attempt_id)
        starts = isinstance(order, StartContainers)
        items = order.items if starts else order.containers
        kept: list[Any] = []
        refused: list[ItemAnswer] = []
        changed = False
        for item in items:
            if starts and item.tasks:
                whole = self._run(order, item, keys, given, kept, refused, refuse)
                changed = changed or not whole
                continue
            container = item.container_id if starts else item
            token = given.of(container)
            held = self._holds(order.node_id, container)
            if not token and not held and not starts:
                error = NOT_HELD if isinstance(order, QueryContainers) else ""
                refused.append(ItemAnswer(container, error=error))
                continue
            if app_of_container(container) != app:
                problem = _not_of(container)
            else:
                problem = self._problem(token, container, keys, held, order.attempt_id)
            if not problem:
                kept.append(item)
                continue
            refuse(type(order).__name__, problem)
            stage, task = (item.stage, item.task) if starts else (-1, -1)
            refused.append(ItemAnswer(container, stage, task, f"{NO_TOKEN}: {problem}"))
        if not changed and len(kept) == len(items):
            return order, refused
        if not kept:
            return None, refused
        kind = type(order)
        more = (order.boot,) if starts else ()
        return kind(order.attempt_id, order.node_id, tuple(kept), *more), refused

    def _run(
        self,
        order: StartContainers,
        item: TaskLaunch,
        keys: dict[int, bytes],
        given: "_Given",
        kept: list[Any],
        refused: list[ItemAnswer],
        refuse: Callable[[str, str], None],
    ) -> bool:
        """Return whether a run may start whole; else add what of it may, and answers for the gaps.

        The work is by the tokens that were shown, not by the length of the run: any caller that
        has none may ask for as long a run as it likes, and a peer that shows untrue ones is soon
        ignored.
        """
        run, good, bad = started_by(item), list[range](), ""
        for part, token in given.within(run):
            parts, problem = self._good(order, part, token, keys)
            good += parts
            bad = bad or problem
            if not parts:
                given.useless_tokens += 1
        # What may start, each range after the one before.
        pieces: list[range] = []
        after = run.start
        for part in [*sorted(good, key=lambda one: one.start), range(run.stop, run.stop)]:
            if part.start > after:
                problem = bad or self._problem(b"", after, keys, False, order.attempt_id)
                refuse(type(order).__name__, problem)
                task, text = item.tasks[after - run.start], f"{NO_TOKEN}: {problem}"
                gap = part.start - after
                refused.append(ItemAnswer(after, item.stage, task, text, gap))
            pieces.append(range(max(after, part.start), part.stop))
            after = max(after, part.stop)
        if sum(map(len, pieces)) == len(run):
            kept.append(item)
            return True
        first = item.container_id
        kept.extend(launch_of(item, number - first) for piece in pieces for number in piece)
        return False

    def _good(
        self, order: StartContainers, part: range, token: bytes, keys: dict[int, bytes]
    ) -> tuple[list[range], str]:
        """Return which containers of a part a token lets start, and what is wrong with the rest."""
        app, first, attempt = app_of_attempt(order.attempt_id), part.start, order.attempt_id
        if app_of_container(first) != app:
            return [], _not_of(first)
        problem = self._problem(token, first, keys, False, attempt)
        if not problem:
            return [part], ""
        if self._problem(token, first, keys, True, attempt):
            return [], problem
        held = [range(n, n + 1) for n in part if self._holds(order.node_id, n)]
        # The token has expired, but what runs may outlive it.
        return held, problem

    def _problem(
        self,
        token: bytes,
        container: ContainerId,
        keys: dict[int, bytes],
        held: bool,
        attempt: AttemptId,
    ) -> str:
        """Return what is wrong with a container's token; one that runs may outlive it.

        It must have been given to the attempt that orders: else a master that was replaced could
        order in its successor's name, or take its containers over for one that is not there yet.
        """
        if not token:
            return f"no token of container {container} was shown"
        now_s = 0.0 if held else self._now_s()
        return tokens.container_problem(token, container, keys, now_s, attempt=attempt)


class _Given:
    """The tokens that came with a call, by the containers that they claim to be for.

    Of those that claim to begin at the same container the last one counts: true ones of runs never
    overlap, and a thousand that do would all be looked at for every run that is to start.
    """

    def __init__(self, shown: Sequence[bytes]) -> None:
        self.useless_tokens = 0
        self._single: dict[ContainerId, bytes] = {}
        # How many containers a token is for, and the token, by the first of them.
        runs: dict[ContainerId, tuple[int, bytes]] = {}
        for token in shown:
            _, first, count = tokens.numbered(token)
            if count == 1:
                self._single[first] = token
            elif count:
                runs[first] = (count, token)
        self._numbers = sorted(self._single)
        self._runs = [(first, *runs[first]) for first in sorted(runs)]
        self._firsts = [first for first, _, _ in self._runs]

    def of(self, container: ContainerId) -> bytes:
        """Return the token of a container; empty: none was shown."""
        token = self._single.get(container)
        if token is not None:
            return token
        place = bisect_right(self._firsts, container)
        if place:
            first, count, token = self._runs[place - 1]
            if container < first + count:
                return token
        return b""

    def within(self, run: range) -> Iterator[tuple[range, bytes]]:
        """Give the parts of a run with the token of each; they may overlap.

        It gives no more once too many were untrue (`UNTRUE_TOKENS_MAX`).
        """
        numbers, firsts = self._numbers, self._firsts
        place, last = max(0, bisect_right(firsts, run.start) - 1), bisect_left(firsts, run.stop)
        while place < last and self.useless_tokens < UNTRUE_TOKENS_MAX:
            first, count, token = self._runs[place]
            part = range(max(first, run.start), min(first + count, run.stop))
            if part:
                yield part, token
            place += 1
        place, last = bisect_left(numbers, run.start), bisect_left(numbers, run.stop)
        while place < last and self.useless_tokens < UNTRUE_TOKENS_MAX:
            number = numbers[place]
            yield range(number, number + 1), self._single[number]
            place += 1


def _not_of(container: ContainerId) -> str:
    return f"container {container} is not of the application that orders it"
