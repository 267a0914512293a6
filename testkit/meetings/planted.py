"""Faults to plant where two features meet: is the search worth its name?

Nine were faults of Weft, nine are lines that somebody might leave out. `tools/plant_meetings.py`
plants them one by one. Most are found by one of the first rows. One passes unseen, "what a limit
holds back hides others": `line=crowd maximum=queue tree=two` shows it, but no row of the pairs.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np

import am.sizes
import rm.placing.feasible
import rm.placing.gangs
import rm.placing.reserve
import sim.results
from am.reuse import PoolExecution
from rm import lifetime
from rm.ledger.ledger import Ledger
from rm.ledger.queues import QueueTree
from rm.match import filter_kernels, limit_kernels
from rm.match.limit_kernels import ADMITTED, USER, Limits
from rm.placing.preempt import _Round

Patch = Any


@contextmanager
def everywhere(name: str, old: object, new: object) -> Iterator[None]:
    """Replace a function in every module that imported it."""
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            if module is not None and vars(module).get(name) is old:
                stack.enter_context(patch.object(module, name, new))
        yield


# -- what were faults of Weft ----------------------------------------------------------------------


def _always(*given: Any) -> bool:
    return True


def _never(*given: Any) -> bool:
    return False


def _nothing(*given: Any) -> None:
    """Plant: the line is not there."""


def _held_back(limits: Limits, app: int, work: np.ndarray) -> int:
    """Plant: a user may not pass the limit with one container, though he holds nothing."""
    first = _HELD_BACK(limits, app, work)
    if first != ADMITTED or not limits.binds:
        return first
    leaf, user = limits.queue[app], limits.user[app]
    part = max(1.0 / max(limits.users[leaf], 1), limits.user_limit[leaf])
    if limits.users[leaf] <= 1 and np.isinf(limits.user_limit_factor[leaf]):
        return ADMITTED
    own = limits.user_held[user] + work
    most = np.maximum(limits.capacity[leaf], limits.queue_held[leaf] + work) * part
    most = np.minimum(most, limits.capacity[leaf] * limits.user_limit_factor[leaf])
    return USER if ((own > most + 1e-9) & (work > 0)).any() else ADMITTED


def _of_any_label(work: PoolExecution, label: str, part: Any, here: Any) -> Any:
    """Plant: a pool does not look at the label of what waits."""
    return _HOLD_VIEW(work, label, part, [one for one in work.pool.values() if not one.notice])


def _naive(limits: Limits, best: np.ndarray, share: np.ndarray) -> None:
    """Plant: what the children of a queue hold is summed up as it is."""
    for queue in range(len(share)):
        share[queue] = limit_kernels.used(limits, queue)


@contextmanager
def _naive_tree() -> Iterator[None]:
    """Plant: shares are summed up, and nobody looks for leaves below their guarantee."""
    with (
        everywhere("fill_hdrf_shares", limit_kernels.fill_hdrf_shares, _naive),
        everywhere("_is_below", limit_kernels._is_below, _never),
    ):
        yield


def _least_sum(option: Any, job: Any, types: Any, machines: Any) -> Any:
    """Plant: the smallest machine is that with the least sum of cores and megabytes."""
    if isinstance(option, str | Mapping) or not machines:
        return _CONTAINER_SIZE(option, job, types, machines)
    return tuple(float(option) * amount for amount in min((one for one, _ in machines), key=sum))


def _next_numbers(run: Any) -> list[int]:
    """Plant: a refused job has the number of the next accepted one."""
    numbers, last = [], 0
    for row in run.jobs:
        numbers.append(row.app or last + 1)
        last = row.app or last
    return numbers


def _first_few(books: Any, look: Any) -> Any:
    """Plant: of those that wait long the first few are looked at, also what limits hold back."""
    for entry in islice(look.late, rm.placing.reserve._OWED_ASKS_MAX):
        if look.may_be_owed(entry) and look.starved(entry):
            slot = rm.placing.reserve._soonest_owed(books, entry)
            if slot >= 0:
                return entry, slot
    return None


def _by_label_only(label: int, serial: int, labels: int, reserved: int, barred: bool) -> int:
    return filter_kernels.OPEN


# -- what somebody might leave out -----------------------------------------------------------------


def _waits_from_the_start(ledger: Ledger, slot: int, queue: int, user: str) -> None:
    """Plant: a user counts as one who asks from submission on."""
    _JOIN(ledger, slot, queue, user)
    at = ledger.apps.user[slot]
    ledger.by_queue.w["users"][queue] += int(ledger.users.pending[at] == 0)
    ledger.users.w["pending"][at] += 1


def _without_maxima(tree: QueueTree, spec: Any) -> None:
    _TREE(tree, spec)
    tree.most[:] = np.inf


def _soon(books: Any, app: Any) -> None:
    """Plant: a lifetime of an hour and more is taken for milliseconds."""
    _LIMIT(books, app)
    lasts_s = app.expires_s - app.submitted_s
    if 3600 < lasts_s < np.inf:
        app.expires_s = app.submitted_s + lasts_s / 1000
        lifetime._set_alarm(books, app)


def _nobody_banned(books: Any, app: int) -> np.ndarray:
    return np.zeros(books.ledger.node_count, np.bool_)


_HELD_BACK = limit_kernels.held_back
_HOLD_VIEW = PoolExecution._hold_view
_CONTAINER_SIZE = am.sizes.container_size
_JOIN = Ledger._join
_TREE = QueueTree.__init__
_LIMIT = lifetime.limit

FAULTS: dict[str, Callable[[], Patch]] = {
    "gang x queue: a gang never waits for its turn": lambda: patch.object(
        rm.placing.gangs, "is_owed", _always
    ),
    "user x idle cluster: who holds nothing is held back": lambda: everywhere(
        "held_back", _HELD_BACK, _held_back
    ),
    "pool x label: containers take tasks of any label": lambda: patch.object(
        PoolExecution, "_hold_view", _of_any_label
    ),
    "line x large ask: later ones are owed first": lambda: patch.object(
        rm.placing.reserve, "_instead", lambda books, look, entry, slot: entry
    ),
    "tree x unlike demands: the naive hierarchy": _naive_tree,
    "pool x unlike nodes: cores and megabytes are summed": lambda: patch.object(
        am.sizes, "container_size", _least_sum
    ),
    "refusal x results: a number twice": lambda: patch.object(
        sim.results, "_numbers", _next_numbers
    ),
    "overbooking x label: any idle node would do": lambda: patch(
        "rm.match.overbook_kernels.kept_off", _by_label_only
    ),
    "starving x maximum: what a limit holds back hides others": lambda: patch.object(
        rm.placing.reserve, "_owed", _first_few
    ),
    "gang x limits: gangs pass them": lambda: patch.object(
        rm.placing.gangs, "within_limits", _always
    ),
    "gang x black list: a gang goes anywhere": lambda: patch.object(
        rm.placing.feasible, "_banned", _nobody_banned
    ),
    "preemption x guarantee: anybody gives": lambda: patch.object(_Round, "_allowed", _always),
    "preemption x room: what is free is not looked at": lambda: patch.object(
        _Round, "_fits", _never
    ),
    "users x masters: who waits for one halves limits": lambda: patch.object(
        Ledger, "_join", _waits_from_the_start
    ),
    "maximum x tree: a maximum is never held": lambda: patch.object(
        QueueTree, "__init__", _without_maxima
    ),
    "lifetime x queue: a far end comes soon": lambda: patch("rm.clients.limit", _soon),
    "large ask x small ones: nobody has a node kept": lambda: patch.object(
        rm.placing.reserve, "_reserve", _nothing
    ),
    "limits x several picks: what was picked does not count": lambda: everywhere(
        "take", limit_kernels.take, _nothing
    ),
}
