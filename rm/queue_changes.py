"""Queues change while the cluster runs: what is new, what stands in the way, and the change.

Queues are known by their paths. Applications stay where they are, and their containers run on; the
new limits, guarantees and orders hold from the next decision on. A leaf queue goes only when it is
empty. Where a new limit can never hold what an application needs, that is told and not refused: the
application waits, as one whose nodes are gone does, and a later change may help it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

from rm.admission import check_limits
from rm.applications import OVER
from rm.dynamic_queues import made_in, with_made, without
from rm.ledger.queues import QueueTree
from rm.lifetime import limit
from rm.placing import backfill
from rm.placing.reserve import release_all
from rm.state.books import Books
from rm.state.records import App
from weft.model.dag import Floats, Ints
from weft.model.errors import InputError
from weft.model.ids import format_app
from weft.model.queues import STOPPED, QueueSpec, as_set, digest_of, queues_to_dict
from weft.protocol.facts import QueueChanged
from weft.protocol.requests import NeverHeld, QueueChange, QueuesSet, Refused, SetQueues

# A refusal names so many queues, and so many applications of each.
_NAMED_MAX = 3


def set_queues(books: Books, request: SetQueues) -> Refused | QueuesSet:
    """Take another tree of queues, unless one that goes is in use; a dry run changes nothing."""
    before = books.queues
    if request.base and request.base != digest_of(before.root):
        return Refused("failed_precondition", "base", "the queues were changed meanwhile")
    after = with_made(request.queues, made_in(before))
    if in_use := _in_use(books, after):
        return Refused("failed_precondition", "queues", in_use)
    try:
        backfill.check_queues(books.matcher, after)
    except InputError as error:
        return Refused("failed_precondition", "queues", str(error))
    # An operator is told what is new to him, not where a router moved what he set.
    said = before if request.base else QueueTree(as_set(before.root))
    answer = QueuesSet(
        tuple(_changes(said, after)), tuple(_never_held(books, after)), books.cluster_ts
    )
    if request.dry_run or after.root == before.root:
        return answer
    change_queues(books, after)
    books.persist({"kind": "queues", "queues": queues_to_dict(request.queues)})
    _persist_made(books, before, after)
    for fact in _facts(before, after, answer.changes):
        books.note(fact)
    return answer


def make_or_drop(books: Books, tree: QueueTree) -> None:
    """Let a tree hold in which queues were made, or empty ones that were made are gone."""
    before = books.queues
    change_queues(books, tree)
    _persist_made(books, before, tree)
    for fact in _facts(before, tree, _changes(before, tree)):
        books.note(fact)


def _persist_made(books: Books, before: QueueTree, after: QueueTree) -> None:
    """Put on record which leaf queues were made, and which of those are gone: an empty state."""
    old, new = made_in(before), made_in(after)
    known, kept = set(old), set(new)
    for path in (path for path in new if path not in known):
        books.persist({"kind": "made", "queue": path, "state": "made"})
    for path in (path for path in old if path not in kept):
        books.persist({"kind": "made", "queue": path, "state": ""})


def expire(books: Books) -> None:
    """Take away the queues that were made and are empty for as long as they say."""
    tree, gone = books.queues, list[str]()
    empty: dict[str, float] = {}
    for slot in tree.made:
        path, queue = tree.specs[slot]
        used = books.ledger.by_queue.apps[slot] if tree.is_leaf[slot] else len(queue.children)
        if not used:
            empty[path] = books.queues_empty.get(path, books.now)
            if books.now - empty[path] >= queue.expires_s:
                gone.append(path)
    books.queues_empty = empty
    if gone:
        make_or_drop(books, QueueTree(without(tree.root, gone)))


def change_queues(books: Books, tree: QueueTree) -> None:
    """Let another tree hold; none of its leaf queues is missing that holds or asks anything."""
    before = books.queues
    now_at: Ints = np.array([tree.slot_of(path) for path in before.paths], dtype=np.int64)
    books.queues = books.view.queues = tree
    for app in books.apps.values():
        path = before.paths[app.queue]
        app.queue = tree.nearest(path)
        if tree.paths[app.queue] != path:
            app.left_queue = app.left_queue or path
    books.ledger.change_queues(tree, now_at)
    books.waiting.queues_changed()
    books.master_usage = _moved_usage(books.master_usage, before, tree, now_at)
    books.matcher.queues_changed(books.view, now_at)
    for app in _live(books):
        books.rows.gangs_moved(app.slot)
        if app.state not in OVER:
            limit(books, app)
    release_all(books)
    books.matching.changed()


def _moved_usage(usage: Floats, before: QueueTree, tree: QueueTree, now_at: Ints) -> Floats:
    """Return what masters hold (queues, d) in another tree, summed up from its leaf queues."""
    moved = np.zeros((len(tree), usage.shape[1]))
    for queue in np.flatnonzero(before.is_leaf & (now_at >= 0)).tolist():
        moved[list(tree.chains[int(now_at[queue])])] += usage[queue]
    return moved


def _live(books: Books) -> Iterator[App]:
    """Yield the applications that hold or may ask something."""
    return (app for app in books.app_at if app is not None)


def _in_use(books: Books, after: QueueTree) -> str:
    """Return which queues cannot go or take queues below them, and what is there; empty: none."""
    leaves = {path for slot, path in enumerate(after.paths) if after.is_leaf[slot]}
    there: dict[str, list[App]] = {}
    for app in _live(books):
        path = books.queues.paths[app.queue]
        if path not in leaves:
            there.setdefault(path, []).append(app)
    told = []
    for path, apps in list(there.items())[:_NAMED_MAX]:
        held = sum(int(books.ledger.apps.containers[app.slot]) for app in apps)
        named = ", ".join(format_app(books.cluster_ts, app.app_id) for app in apps[:_NAMED_MAX])
        more = ", ..." if len(apps) > _NAMED_MAX else ""
        what = "has to stay a leaf queue" if path in after.paths else "cannot go"
        told.append(f"queue {path} {what}: {held} containers of {named}{more} are there")
    if len(there) > _NAMED_MAX:
        told.append(f"and {len(there) - _NAMED_MAX} queues more")
    return "; ".join(told)


def _changes(before: QueueTree, after: QueueTree) -> Iterator[QueueChange]:
    """Yield what is new, in the order of the new tree; then what is gone."""
    known, kept = dict(before.specs), set(after.paths)
    for path, queue in after.specs:
        old = known.get(path)
        if old is None:
            yield QueueChange(path, "added", _told(None, queue))
        elif text := _told(old, queue):
            change = "changed"
            if old.state != queue.state:
                change = "stopped" if queue.state == STOPPED else "started"
            yield QueueChange(path, change, text)
    for path in before.paths:
        if path not in kept:
            yield QueueChange(path, "removed")


def _facts(
    before: QueueTree, after: QueueTree, changes: Iterable[QueueChange]
) -> Iterator[QueueChanged]:
    """Yield what changed, also what did as a queue above it changed: its part of the cluster."""
    said = {one.queue: one.change for one in changes}
    for slot, path in enumerate(after.paths):
        at = before.slot_of(path)
        part = float(after.capacity[slot]), float(after.max_capacity[slot])
        moved = at < 0 or part != (float(before.capacity[at]), float(before.max_capacity[at]))
        if moved or path in said:
            yield QueueChanged(path, said.get(path, "changed"), *part)
    yield from (QueueChanged(path, how) for path, how in said.items() if how == "removed")


def _told(old: QueueSpec | None, new: QueueSpec) -> str:
    """Return which settings of a queue had and have which value; empty: all are as they were.

    Of a new queue, those that are not as usual.
    """
    before = old or QueueSpec(new.name, -1.0)
    names = (one.name for one in fields(QueueSpec) if one.name not in ("name", "children"))
    changed = (name for name in names if getattr(before, name) != getattr(new, name))
    return ", ".join(
        f"{name} {'' if old is None else f'{_word(getattr(old, name))} -> '}"
        f"{_word(getattr(new, name))}"
        for name in changed
    )


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "as above"
    if isinstance(value, Mapping):
        return _table(value)
    if is_dataclass(value):
        said = ((one, getattr(value, one.name)) for one in fields(value))
        return _table({one.name: word for one, word in said if word != one.default})
    if isinstance(value, tuple):
        return ", ".join(map(_word, value)) or "nobody"
    return str(value)


def _table(rows: Mapping[str, Any]) -> str:
    """Return `[memory_mb=4096,vcores=2]` without what is empty; what all nodes have, alone."""
    if rows.keys() == {""}:
        return _word(rows[""])
    told = [f"{key or 'no label'}={_word(one)}" for key, one in rows.items() if one != {}]
    return f"[{','.join(told)}]" if told else "none"


def _never_held(books: Books, after: QueueTree) -> Iterator[NeverHeld]:
    """Yield the applications that limits of the new tree can never hold, though they were held.

    They are judged as a submission is.
    """
    before = books.queues

    @cache
    def bounds_change(queue: int) -> bool:
        at = after.slot_of(before.paths[queue])
        sizes_change = before.max_allocation[queue] != after.max_allocation[at]
        return sizes_change or _bounds(before, queue) != _bounds(after, at)

    for app in _live(books):
        if app.state in OVER or not bounds_change(app.queue):
            continue
        path = before.paths[app.queue]
        try:
            check_limits(books, app.job, after, after.slot_of(path))
        except InputError as error:
            yield NeverHeld(app.app_id, path, error.problem)


def _bounds(tree: QueueTree, leaf: int) -> list[float]:
    """Return what bounds the holdings of a leaf queue and of its users."""
    chain = list(tree.chains[leaf])
    factor, capacity = float(tree.user_limit_factor[leaf]), float(tree.capacity[leaf])
    return [*tree.most[chain].tolist(), factor, capacity]
