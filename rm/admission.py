"""What a queue accepts: how many applications, and which jobs could ever run within its limits.

The same functions judge a submission, a move, and what is there already when queues change.
"""

from collections.abc import Mapping

from rm.ledger.queues import QueueTree
from rm.masters.asking import ASKS_MIN, OPEN_JOB_ASKED_MAX
from rm.placing.feasible import ROUND_GRANTS_MAX, NoRoomError, fits_a_class, within_maximum
from rm.placing.gang_room import check_gangs
from rm.state.books import Books
from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.model.job_size import job_bytes, live_bytes
from weft.model.recording import Recording
from weft.model.resources import TOLERANCE, Vector
from weft.protocol.requests import Refused


def refusal(books: Books, tree: QueueTree, queue: int, user: str, left: int = -1) -> Refused | None:
    """Return why a queue takes no application of a user, None where it takes one.

    `tree` is the books', or one that is to hold, in which the queue is new.
    What an application that leaves the queue `left` is in already takes it whatever their number.
    """
    if tree.stopped[queue]:
        text = f"queue {tree.paths[queue]} is STOPPED and takes no applications"
        return Refused("failed_precondition", "queue", text)
    if text := _full(books, tree, queue, user, left):
        return Refused("resource_exhausted", "queue", text)
    return None


def _full(books: Books, tree: QueueTree, queue: int, user: str, left: int) -> str:
    """Return why a queue takes no more applications, of anybody or of this user; empty: it does."""
    settings, ledger = books.settings, books.ledger
    path, there = tree.paths[queue], tree.chains[left] if left >= 0 else ()
    for at in tree.chains[queue]:
        most = int(tree.max_applications[at]) or (settings.queue_apps_max if at == queue else 0)
        known = books.queues.slot_of(tree.paths[at])
        if at not in there and known >= 0 and 0 < most <= ledger.apps_in(known):
            return f"{tree.paths[at]} has {most} applications, the most that it takes"
    known = books.queues.slot_of(path)
    own = tree.specs[queue][1].max_user_applications
    there_now = ledger.apps_of(known, user)
    if 0 <= own <= there_now:
        return f"user {user!r} has {there_now} applications in {path}, the most"
    return ""


def no_memory(books: Books, job: Job) -> Refused | None:
    """Return why there is no room for a job beside the applications that have not ended."""
    most, wanted = books.settings.jobs_mb_max * 1e6, live_bytes(job, job_bytes(job))
    if not most or books.live_bytes + wanted <= most:
        return None
    text = f"it takes {wanted / 1e6:,.1f} MB, and applications that have not ended "
    text += f"{books.live_bytes / 1e6:,.1f} MB of the {most / 1e6:,.1f} MB that they may take"
    return Refused("resource_exhausted", "job", f"{text} in all (jobs_mb_max)")


def check_fits(books: Books, job: Job) -> None:
    """Raise unless every task fits on some node that is up; without nodes, any job passes."""
    for name in job.resources:
        books.types.vector({name: 0.0}, "resources")
    if job.master is not None:
        vector = books.types.vector(job.master.demand, "master.demand")
        if books.classes and not fits_a_class(books, vector, job.master.label):
            raise NoRoomError("master.demand", f"the master fits on no node{_most(books)}")
        if job.master.recorded is not None:
            _check_recording(books, job.master.recorded)
        return
    for position, stage in enumerate(job.stages):
        place = f"stages[{position}].demand"
        if stage.together and stage.tasks > ROUND_GRANTS_MAX:
            raise InputError(
                f"stages[{position}].tasks",
                f"{stage.tasks} in a gang; at most {ROUND_GRANTS_MAX} start together",
            )
        for demand in _demands(books, stage, place):
            if books.classes and not fits_a_class(books, demand, stage.label):
                what = _shown(books.types.mapping(demand))
                label = f" with label {stage.label!r}" if stage.label else ""
                raise NoRoomError(
                    place,
                    f"a task of stage {stage.name!r} ({what}) fits on no node{label}{_most(books)}",
                )


def _most(books: Books) -> str:
    """Return what nodes have at most of each resource, as the end of a refusal."""
    return f"; nodes have at most {_shown(books.types.mapping(books.largest()))}"


def _shown(amounts: Mapping[str, float]) -> str:
    """Return `2 vcores, 9999999 memory_mb`: whole numbers are not rounded."""
    return ", ".join(f"{amount:.12g} {name}" for name, amount in amounts.items() if amount)


def check_limits(books: Books, job: Job, tree: QueueTree, queue: int) -> None:
    """Raise where a queue, or its users, may never hold what a task or a gang of a job needs."""
    _check_sizes(books, job, tree, queue)
    if tree.limited and books.classes:
        if job.master is not None and job.master.recorded is not None:
            for position, request in enumerate(job.master.recorded.requests):
                place = f"master.recorded.requests[{position}].demand"
                within_maximum(books, tree, queue, books.types.vector(request.demand), place, "it")
        for position, stage in enumerate(job.stages if job.master is None else ()):
            place = f"stages[{position}].demand"
            for demand in _demands(books, stage, place):
                what = f"a task of stage {stage.name!r}"
                within_maximum(books, tree, queue, demand, place, what)
    check_gangs(books, job, tree, queue)


def _check_sizes(books: Books, job: Job, tree: QueueTree, queue: int) -> None:
    """Raise where a container of a job is to have more than its queue's containers may."""
    if not (most := tree.max_allocation[queue]):
        return
    if job.master is not None:
        wanted = [("master.demand", job.master.demand)]
        asked = job.master.recorded.requests if job.master.recorded is not None else ()
        wanted += [
            (f"master.recorded.requests[{position}].demand", one.demand)
            for position, one in enumerate(asked)
        ]
    else:
        wanted = [("job", books.types.mapping(books.master_vector))]
        for position, stage in enumerate(job.stages):
            own = [o.demand for o in stage.overrides if o.demand is not None]
            wanted += [(f"stages[{position}].demand", one) for one in (stage.demand, *own)]
    for place, demand in wanted:
        for name, amount in demand.items():
            if name in most and amount > most[name] * (1 + TOLERANCE):
                text = f"{amount:g} {name} are more than the {most[name]:g} of a container in "
                raise InputError(place, text + tree.paths[queue])


def _check_recording(books: Books, recording: Recording) -> None:
    """Raise unless all that a recorded master waits for is possible: it would wait without end."""
    place = "master.recorded.requests"
    if len(recording.requests) > ASKS_MIN:
        text = f"{len(recording.requests)} are more than the {ASKS_MIN} that an open job may have"
        raise InputError(place, text)
    racks = {node.rack for node in books.nodes.values()}
    for position, request in enumerate(recording.requests):
        demand = books.types.vector(request.demand, f"{place}[{position}].demand")
        if not request.held_s or not books.classes:
            continue
        if not fits_a_class(books, demand, request.label):
            label = f" with label {request.label!r}" if request.label else ""
            text = f"it fits on no node{label}{_most(books)}"
            raise NoRoomError(f"{place}[{position}].demand", text)
        if request.strict and (request.nodes or request.racks):
            near = racks.intersection(request.racks)
            if not near and not any(name in books.nodes for name in request.nodes):
                raise NoRoomError(f"{place}[{position}].nodes", "none of them is there")
    pending, asked = 0, [0] * len(recording.requests)
    # This is of a full cluster, which has granted nothing.
    for position, ask in enumerate(recording.asks):
        pending += ask.total - asked[ask.request]
        asked[ask.request] = ask.total
        if pending > OPEN_JOB_ASKED_MAX:
            raise InputError(
                f"master.recorded.asks[{position}]",
                f"{pending} containers pending; at most {OPEN_JOB_ASKED_MAX} of an open job",
            )


def _demands(books: Books, stage: Stage, place: str) -> set[Vector]:
    """Return what a stage's tasks need, and what their containers would be booked with."""
    wanted = [books.types.vector(stage.demand, place)]
    for index, override in enumerate(stage.overrides):
        if override.demand is not None:
            where = place.replace(".demand", f".tasks[{index}].demand")
            wanted.append(books.types.vector(override.demand, where))
    granted = [books.fitted(demand) for demand in wanted]
    return {books.raised(demand) for demand in (*wanted, *granted)}
