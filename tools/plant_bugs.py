"""Is the fault search worth its name? Plants known bugs and counts the seeds that find each.

`make fuzz-planted`: every bug must be found in under 1,000 seeds and shrunk to at most 5 faults.
Each is one line that somebody might leave out, or has: several were bugs of Weft.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import nm.containers
import nm.core
import nm.runner
import rm.core
import rm.masters.accepting
import rm.nodes.reporting
import rm.state.books
from am.job_state import JobState
from am.launching import Launcher
from am.reuse import PoolExecution
from sim import fuzz
from sim.swarm import Case, case
from weft.model.ids import container_id
from weft.protocol.effects import Persist
from weft.protocol.messages import ContainerEnd, NodeHeartbeated, Outcome, StartAnswered
from weft.protocol.outbox import Outbox

SEEDS_MAX, FAULTS_MAX = 1000, 5
Patch = Any


def _without(kind: str) -> Callable[..., Any]:
    """Plant: the manager forgets to write one kind of record."""
    keep = rm.state.books.Books.answer

    def answer(books: rm.state.books.Books) -> Any:
        books.records = [record for record in books.records if record["kind"] != kind]
        if kind == "tasks":
            books.unsaved_tasks = {}
        return keep(books)

    return answer


def _once(box: Outbox[Any, Any], now: float) -> Any:
    """Plant: what is not acknowledged is not sent again."""
    number, box._next = box._next, box._next + 1
    items, box._fresh = list(box._fresh.values()), {}
    return number, items


def _same_ids(books: Any, attempt: Any, count: int) -> int:
    """Plant: every life of the manager numbers containers from the start."""
    number = attempt.next_number
    attempt.next_number += count
    return container_id(attempt.attempt_id, number)


class _Nothing(set):  # type: ignore[type-arg]
    """A set that never has anything."""

    def __contains__(self, item: object) -> bool:
        return False


def _forgetful(begin: Callable[..., None]) -> Callable[..., None]:
    def init(self: JobState, *given: Any) -> None:
        begin(self, *given)
        self.seen = _Nothing()

    return init


def _unheard(books: Any, event: NodeHeartbeated) -> None:
    _HEARTBEAT(books, replace(event, acks=()))


_HEARTBEAT = rm.nodes.reporting.heartbeat
_REGISTER = rm.masters.accepting.register


def _without_held(books: Any, event: Any) -> None:
    _REGISTER(books, replace(event, held=()))


def _answered_by_any_life(node: Any, event: Any, now: float, effects: Any) -> None:
    _ON_ANSWER(node, replace(event, life=0), now, effects)


def _never_acknowledged(node: Any, event: Any, now: float, effects: Any) -> None:
    _ON_ANSWER(node, replace(event, acks=()), now, effects)


def _still_there(work: PoolExecution, end: ContainerEnd, now: float) -> None:
    """Plant: a container that is lost stays in the pool."""
    if end.outcome is not Outcome.LOST or end.container_id not in work.pool:
        _CONTAINER_ENDED(work, end, now)


def _never_told_gone(work: PoolExecution, event: StartAnswered, now: float) -> None:
    """Plant: nor does a node's word that it has no such container take it out."""
    items = tuple(item for item in event.items if not item.error)
    _START_ANSWERED(work, replace(event, items=items), now)


def _written_last(books: rm.state.books.Books) -> Any:
    """Plant: what was decided is told before it is durable."""
    effects = _ANSWER(books)
    return sorted(effects, key=lambda effect: type(effect) is Persist)


_ANSWER = rm.state.books.Books.answer
_ON_ANSWER = nm.core.NodeManager._on_answer
_CONTAINER_ENDED = PoolExecution._container_ended
_START_ANSWERED = PoolExecution.start_answered


def _nothing(*given: Any, **named: Any) -> None:
    """Plant: the line is not there."""


BUGS: dict[str, Callable[[], Patch]] = {
    "an accepted job is not persisted": lambda: patch.object(
        rm.state.books.Books, "answer", _without("app")
    ),
    "a finished task is not persisted": lambda: patch.object(
        rm.state.books.Books, "answer", _without("tasks")
    ),
    "an id is granted again after a restart": lambda: patch(
        "rm.placing.allocation.next_ids", _same_ids
    ),
    "a doubled grant is taken for a new one": lambda: patch.object(
        JobState, "__init__", _forgetful(JobState.__init__)
    ),
    "what is not acknowledged is sent once": lambda: patch.object(Outbox, "take", _once),
    "a start is ordered once": lambda: patch.object(Launcher, "repeat", _nothing),
    "a ghost stays in the books": lambda: patch("rm.nodes.registering.order_stop", _nothing),
    "acknowledgements of orders are ignored": lambda: patch(
        "rm.nodes.reporting.heartbeat", _unheard
    ),
    "expiry before what waits is heard": lambda: patch.object(
        rm.core.ResourceManager, "_forgive", _nothing
    ),
    "what a master holds is not asked for": lambda: patch.object(
        rm.masters.accepting, "register", _without_held
    ),
    "a stop that overtakes its start is forgotten": lambda: patch.object(
        nm.containers.NodeContainers, "bury", _nothing
    ),
    "a node without answers goes on starting": lambda: patch.object(
        nm.core.NodeManager,
        "_expiry_s",
        property(lambda self: 1e9, lambda self, value: None),
        create=True,
    ),
    "a node heeds answers of any life of the manager": lambda: patch.object(
        nm.core.NodeManager, "_on_answer", _answered_by_any_life
    ),
    "reports of nodes are acknowledged in vain": lambda: patch.object(
        nm.core.NodeManager, "_on_answer", _never_acknowledged
    ),
    "a ghost stays in a pool": lambda: patch.multiple(
        PoolExecution, _container_ended=_still_there, start_answered=_never_told_gone
    ),
    "a success in a container that never was counts": lambda: patch(
        "rm.containers.may_have_run", lambda *given: True
    ),
    "an order to leave service is not journalled": lambda: patch.object(
        rm.state.books.Books, "answer", _without("node")
    ),
    "clients are answered before the journal is written": lambda: patch.object(
        rm.state.books.Books, "answer", _written_last
    ),
}


def find(name: str, seeds_max: int = SEEDS_MAX) -> tuple[int, Case, str] | None:
    """Plant one bug; return the number of seeds it took, the shrunk case, what it broke."""
    with BUGS[name]():
        for seed in range(seeds_max):
            one = case(seed)
            verdict = fuzz.run(one)
            if verdict.problem:
                small = fuzz.shrink(one, verdict.kind)
                return seed + 1, small, fuzz.run(small).problem
    return None


def main() -> int:
    """Print a table of all bugs; 1 where one was not found or not shrunk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Bugs whose name contains this.")
    chosen = [name for name in BUGS if parser.parse_args().only in name]
    bad = 0
    print(f"{'bug':46} seeds faults   s  found as")
    for name in chosen:
        began_s = time.perf_counter()
        found = find(name)
        took_s = time.perf_counter() - began_s
        if found is None:
            bad += 1
            print(f"{name:46}     -      - {took_s:4.0f}  NOT FOUND", flush=True)
            continue
        seeds, small, problem = found
        faults = len(small.faults.script)
        bad += faults > FAULTS_MAX
        print(f"{name:46} {seeds:5} {faults:6} {took_s:4.0f}  {problem[:90]}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
