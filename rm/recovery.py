"""What a restarted manager knows again, from records that are plain JSON data.

Kinds: `start` (of the manager), `app`, `attempt` (its master got a container), `failed` (an
attempt), `tasks` (finished: [stage, task, run_s]), `move`, `priority`, `final`; `node` (it leaves,
or left, or is in service again: an empty state); `queues` (the tree that a client set last); `made`
(a leaf queue, at a submission; gone: an empty state); `update` (what an operator says of a node).

What is not among them comes back by itself: what runs is told by nodes, what is wanted by masters,
each when it registers. So the journal grows with applications and finished tasks, not with grants.
But for `start`, of which there is one a life, a record is a fact and not a change of one, so those
that a later one covers can be left out (`compact`). Unknown kinds are refused: a journal of a newer
release is not to be read in part.
"""

from collections.abc import Iterable

import numpy as np

from rm.applications import move_app, move_attempt, new_attempt, open_app, schedule_attempt
from rm.dynamic_queues import with_made
from rm.forgetting import ENDED_WHOLE_BYTES_MAX, ENDED_WHOLE_MAX, remember
from rm.ledger.queues import QueueTree
from rm.lifetime import limit
from rm.nodes.registering import recover_leaving
from rm.nodes.updating import remember as remember_update
from rm.queue_changes import change_queues
from rm.state.books import Books
from rm.state.lifecycle import AppEvent, AttemptEvent
from rm.state.records import App
from weft.model.errors import InputError
from weft.model.ids import number_of_attempt
from weft.model.job import Job, Stage
from weft.model.jobfile import TASKS_MAX, job_from_dict
from weft.model.json_types import Json, Table
from weft.model.queues import queues_from_dict
from weft.protocol.effects import Recovered
from weft.protocol.facts import Remark

Record = Table

KINDS = frozenset(
    {
        "start",
        "app",
        "attempt",
        "failed",
        "tasks",
        "move",
        "priority",
        "expiry",
        "started",
        "final",
        "node",
        "next",
        "queues",
        "made",
        "update",
    }
)
# Of these the newest of each node or queue counts; one that says none of its words says nothing any
# more.
_OF_CLUSTER = {
    "queues": ("queues",),
    "made": ("state",),
    "update": ("capacity", "labels"),
    "node": ("state",),
}
_FINAL = {
    "FINISHED": AppEvent.RECOVER_FINISHED,
    "FAILED": AppEvent.RECOVER_FAILED,
    "KILLED": AppEvent.RECOVER_KILLED,
}


def recover(books: Books, event: Recovered) -> None:
    """Handle the first event: applications come back; masters and nodes will register again."""
    books.started_s = books.now
    records = compact(event.records)
    books.epoch = sum(int(r.get("count", 1)) for r in records if r["kind"] == "start")
    books.persist({"kind": "start"})
    by_app: dict[int, list[Record]] = {}
    made = list[str]()
    for record in records:
        if record["kind"] == "next":
            books.next_app = books.own_number(int(record["app"]))
        elif record["kind"] == "node":
            recover_leaving(
                books, str(record["node"]), str(record["state"]), float(record["until_s"])
            )
        elif record["kind"] == "update":
            said = {key: record[key] for key in ("capacity", "labels") if key in record}
            remember_update(books, str(record["node"]), said)
        elif record["kind"] == "queues":
            _recover_queues(books, record["queues"])
        elif record["kind"] == "made":
            made.append(str(record["queue"]))
        elif record["kind"] != "start":
            by_app.setdefault(int(record["app"]), []).append(record)
    if made:
        change_queues(books, with_made(books.queues.root, made))
    for number, found in by_app.items():
        if found[0]["kind"] == "app":
            _recover_app(books, number, found)
            books.next_app = max(books.next_app, books.own_number(number + 1))


def compact(records: Iterable[Record], apps_max: int = 10_000) -> list[Record]:
    """Return the same knowledge in fewer records; pure, and compacting again changes nothing.

    Of ended applications the journal goes, and the oldest beyond `apps_max` go altogether.
    """
    starts, newest = 0, 0
    newest_of: dict[tuple[str, str], Record] = {}
    apps: dict[int, Json] = {}
    for record in records:
        kind = record["kind"]
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is unknown")
        if kind == "start":
            starts += int(record.get("count", 1))
            continue
        if kind in _OF_CLUSTER:
            about = str(kind), str(record.get("node", record.get("queue", "")))
            newest_of.pop(about, None)
            if any(record.get(key) not in (None, "") for key in _OF_CLUSTER[kind]):
                newest_of[about] = record
            continue
        number = int(record["app"])
        if kind == "next":
            newest = max(newest, number - 1)
            continue
        newest = max(newest, number)
        known = apps.setdefault(number, {"tasks": {}, "failed": {}})
        if kind == "tasks":
            known["tasks"].update({(int(s), int(t)): run for s, t, run in record["tasks"]})
        elif kind == "failed":
            known["failed"][int(record["attempt"])] = record
        elif kind in _FIELD:
            known["app"] = {**known["app"], **{k: record[k] for k in (_FIELD[kind],)}}
        else:
            known[kind] = record
    out: list[Record] = [{"kind": "start", "count": starts}] if starts else []
    out.append({"kind": "next", "app": newest + 1})
    out.extend(newest_of.values())
    ended = [number for number, known in apps.items() if "final" in known]
    for number in ended[: max(0, len(ended) - apps_max)]:
        del apps[number]
    small = set(ended) - set(
        _whole((number, apps[number].get("app", {})) for number in reversed(ended))
    )
    for number, known in apps.items():
        if "app" in known:
            out.extend(_records_of(number, known, number in small))
    return out


def _whole(newest_first: Iterable[tuple[int, Table]]) -> Iterable[int]:
    """Yield the ended applications that are kept whole, as `rm.forgetting.remember` keeps them."""
    total = 0
    for place, (number, record) in enumerate(newest_first):
        total += int(record.get("bytes", 0))
        if place >= ENDED_WHOLE_MAX or (place and total > ENDED_WHOLE_BYTES_MAX):
            return
        yield number


_FIELD = {
    "move": "queue",
    "priority": "priority",
    "expiry": "expires_s",
    "started": "started_s",
}


def _records_of(number: int, known: Table, small: bool) -> Iterable[Record]:
    yield _shortened(known["app"]) if small else known["app"]
    if "final" in known:
        done: dict[int, int] = dict(known["final"].get("finished", {}))
        for stage, _ in known["tasks"]:
            done[stage] = done.get(stage, 0) + 1
        pairs = [[stage, count] for stage, count in sorted(done.items())]
        if small:
            pairs = [[0, sum(done.values())]]
        final = {**known["final"], "finished": pairs}
        if small and "failed_tasks" in final:
            final["failed_tasks"] = [[0, sum(count for _, count in final["failed_tasks"])]]
        yield final
        return
    yield from known["failed"].values()
    if "attempt" in known:
        yield known["attempt"]
    if known["tasks"]:
        tasks = [[stage, task, run] for (stage, task), run in known["tasks"].items()]
        yield {"kind": "tasks", "app": number, "tasks": tasks}


_LISTED = ("name", "queue", "user", "priority", "kind", "tags")


def _shortened(record: Record) -> Record:
    """Return an application's record as `rm.forgetting.shorten` leaves the application."""
    job = record["job"]
    counts = [stage["tasks"] for stage in job["stages"]]
    tasks = sum(len(count) if isinstance(count, list) else int(count) for count in counts)
    rest = {key: job[key] for key in _LISTED if key in job}
    stage = {"name": "all", "tasks": min(tasks, TASKS_MAX), "duration_s": 0.0, "demand": {}}
    return {**record, "whole": False, "job": {**rest, "stages": [stage]}}


def _recover_queues(books: Books, data: object) -> None:
    """Let the queues hold that a client set, whatever the settings say by now."""
    settings, found = books.queues.root, queues_from_dict(data)
    change_queues(books, QueueTree(found))
    if found != settings:
        text = "the queues are those that were set last, not those of the settings: set them anew"
        books.note(Remark("info", text))


def _recover_app(books: Books, number: int, found: list[Record]) -> None:
    first = found[0]
    by_kind = {record["kind"]: record for record in found}
    why, queue = "", _queue_of(books, str(first["queue"]))
    if queue < 0:
        why, queue = f"queue {first['queue']} is gone, and there is no other", 0
    try:
        job = job_from_dict(first["job"])
    except InputError as error:
        # An earlier version accepted the job, and this one could not run it.
        job = Job(f"application {number}", (Stage("all", 1, 0.0, {}),))
        why = f"its job is refused: {error}"
    if why and "final" not in by_kind:
        by_kind["final"] = _refused(books, number, why)
        books.persist(by_kind["final"])
    at_s, submission_id = float(first["submitted_s"]), str(first["submission_id"])
    app = App(number, job, submission_id, queue, at_s, len(books.types))
    app.priority = int(first["priority"])
    app.wished_s = float(first.get("expires_s", 0.0))
    app.started_s = float(first.get("started_s", 0.0))
    books.apps[number] = app
    if app.submission_id:
        books.submissions[app.submission_id] = number
    app.whole = bool(first.get("whole", True))
    if "final" in by_kind:
        _recover_ended(books, app, by_kind["final"], str(first["queue"]))
        return
    for stage, task, run_s in by_kind.get("tasks", {"tasks": ()})["tasks"]:
        app.finished[int(stage)][int(task)] = float(run_s)
        app.finished_by_stage[int(stage)] += 1
    # Those of an open job are not known.
    app.progress = sum(app.finished_by_stage) / max(1, app.job.task_count)
    app.held_s = np.array(_held_by_finished(books, app))
    move_app(books, app, AppEvent.SUBMIT)
    open_app(books, app)
    move_app(books, app, AppEvent.ACCEPT)
    limit(books, app)
    failures = [record for record in found if record["kind"] == "failed"]
    failed = len(failures)
    for past, record in enumerate(failures, 1):
        attempt = new_attempt(books, app, past)
        attempt.recovered = True
        attempt.counts = bool(record.get("counts", True))
        attempt.takes_over = bool(record.get("kept", False))
        attempt.failed_on = str(record.get("node", ""))
        attempt.ended_node = bool(record.get("ended_node", False))
        move_attempt(books, attempt, AttemptEvent.FAIL, "before the manager's restart")
    last = by_kind.get("attempt")
    if last is None or number_of_attempt(int(last["attempt"])) <= failed:
        schedule_attempt(books, app)
        return
    _recover_attempt(books, app, failed + 1, last)


def _queue_of(books: Books, name: str) -> int:
    """Return the slot of an application's leaf queue; -1: there is no leaf queue at all.

    Where it is gone from the settings, any is better than none.
    """
    try:
        return books.queues.leaf(name)
    except InputError:
        return next(iter(np.flatnonzero(books.queues.is_leaf).tolist()), -1)


def _recover_attempt(books: Books, app: App, number: int, last: Record) -> None:
    job, attempt = app.job, new_attempt(books, app, number)
    attempt.seed = int(last["seed"])
    attempt.master_id = int(last["container"])
    attempt.recovered = True
    if not job.unmanaged:
        books.returning_masters.setdefault(str(last["node"]), []).append(attempt)
    move_attempt(books, attempt, AttemptEvent.RECOVER)
    # Its master runs, so the policy lets it ask, and places none.
    spec = job.master
    vector, label = None if job.unmanaged else attempt.vector, "" if spec is None else spec.label
    books.matcher.attempt_added(books.view, app.slot, vector, label, runs=True)


def _refused(books: Books, number: int, why: str) -> Record:
    """Return the end of an application that this version, with these queues, cannot run."""
    books.note(Remark("warning", f"application {number} was ended", (("reason", why),)))
    return {
        "kind": "final",
        "app": number,
        "state": "FAILED",
        "status": "FAILED",
        "diagnostics": why,
        "started_s": 0.0,
        "finished_s": books.now,
        "progress": 0.0,
        "attempt": 0,
    }


def _recover_ended(books: Books, app: App, record: Record, queue: str) -> None:
    app.queue = books.queues.nearest(queue)
    app.left_queue = queue if queue != books.queues.paths[app.queue] else ""
    app.final_status = str(record["status"])
    app.sizes = []
    app.started_s = float(record["started_s"])
    app.finished_s = float(record["finished_s"])
    app.progress = float(record["progress"])
    app.tracking_url = str(record.get("tracking_url", ""))
    for stage, count in record.get("finished", ()):
        app.finished_by_stage[int(stage)] = int(count)
    if app.final_status == "SUCCEEDED":
        app.finished_by_stage = [one.tasks for one in app.job.stages]
    for stage, count in record.get("failed_tasks", ()):
        app.failed[int(stage)] = int(count)
    held_s, taken = record.get("held_s", {}), record.get("preempted_amounts", {})
    app.held_s = np.array([float(held_s.get(name, 0.0)) for name in books.types.names])
    app.preempted = int(record.get("preempted", 0))
    app.preempted_amounts = [float(taken.get(name, 0.0)) for name in books.types.names]
    app.last_number = number_of_attempt(int(record["attempt"]))
    move_app(books, app, _FINAL[str(record["state"])], str(record["diagnostics"]))
    remember(books, app)


def _held_by_finished(books: Books, app: App) -> list[float]:
    """Return what the journal proves that an application held so far, s x amount.

    Those are its finished tasks. What its master, failed tries and containers under way held before
    a restart is not known.
    """
    held_s = [0.0] * len(books.types)
    for stage, done in zip(app.job.stages, app.finished, strict=True):
        for task, run_s in done.items():
            for name, amount in stage.demand_of(task).items():
                if name in books.types.names:
                    held_s[books.types.names.index(name)] += amount * run_s
    return held_s
