"""The job file format as plain data: each value is checked at its place; nothing is guessed.

Files, the wire, tapes and the manager's journal are read with these functions, so what one of
them takes, all do. An unknown key is an error: a misspelt one would silently mean its default. The
limits are those of what holds a job, not of what a user may wish for: a master has every task in
memory, and a report of every edge goes into one message.
"""

from weft.model.errors import InputError
from weft.model.job import (
    NO_PAIRS,
    NO_PREFERENCE,
    Edge,
    EdgeKind,
    Job,
    MasterSpec,
    Preference,
    Stage,
    TaskOverride,
    TaskPairs,
    read_number_per_task,
)
from weft.model.json_types import Json, Table
from weft.model.reading import read_integer as _integer
from weft.model.reading import read_name as _name
from weft.model.reading import read_table as _table
from weft.model.reading import read_word as _word
from weft.model.recording import read_recording, recording_to_dict
from weft.model.resources import read_amount

# A master holds all tasks of a job in memory, and the report of its edges must fit one message.
TASKS_MAX = 10_000_000
EDGE_PAIRS_MAX = 10_000_000
JOB_STAGES_MAX = 10_000
JOB_EDGES_MAX = 200_000
_JOB_KEYS = {
    "name",
    "queue",
    "user",
    "priority",
    "arrival_s",
    "max_task_attempts",
    "lifetime_s",
    "history_key",
    "input_mb",
    "resources",
    "stages",
    "kind",
    "tags",
    "master",
}
_MASTER_KEYS = {"demand", "command", "environment", "label", "max_attempts", "recorded"}
ATTEMPTS_MAX = 255
_TASK_KEYS = {"duration_s", "demand", "actual_duration_s", "actual_demand", "prefer", "command"}
_STAGE_KEYS = _TASK_KEYS | {"name", "tasks", "parents", "label", "gang", "checkpoint_s"}


def job_from_dict(data: object, place: str = "") -> Job:
    """Read one job; raises InputError with the place of the first problem."""
    prefix = f"{place}." if place else ""
    table = _table(data, place or "job", _JOB_KEYS)
    master = table.get("master")
    stages = table.get("stages", [] if master is not None else None)
    if not isinstance(stages, list) or not (stages or master is not None):
        raise InputError(f"{prefix}stages", "expected a list of at least one stage")
    if len(stages) > JOB_STAGES_MAX:
        raise InputError(
            f"{prefix}stages", f"{len(stages)} are more than the limit of {JOB_STAGES_MAX}"
        )
    resources = table.get("resources", [])
    if not isinstance(resources, list) or not all(isinstance(r, str) for r in resources):
        raise InputError(f"{prefix}resources", "expected a list of names")
    try:
        read = tuple(_stage(s, f"{prefix}stages[{i}]") for i, s in enumerate(stages))
        for what, count, most in (
            ("tasks", sum(stage.tasks for stage in read), TASKS_MAX),
            ("edges", sum(len(stage.parents) for stage in read), JOB_EDGES_MAX),
        ):
            if count > most:
                text = f"{count} {what} are more than the limit of {most} of a job"
                raise InputError(f"{prefix}stages", text)
        return Job(
            name=_name(table.get("name"), f"{prefix}name"),
            stages=read,
            queue=_name(table.get("queue", "default"), f"{prefix}queue"),
            user=_name(table.get("user", ""), f"{prefix}user", empty=True),
            priority=_integer(table.get("priority", 0), f"{prefix}priority", -(2**31)),
            arrival_s=read_amount(table.get("arrival_s", 0.0), f"{prefix}arrival_s"),
            max_task_attempts=_integer(
                table.get("max_task_attempts", 4), f"{prefix}max_task_attempts", 1
            ),
            lifetime_s=read_amount(table.get("lifetime_s", 0.0), f"{prefix}lifetime_s"),
            history_key=_name(table.get("history_key", ""), f"{prefix}history_key", empty=True),
            input_mb=read_amount(table.get("input_mb", 0.0), f"{prefix}input_mb"),
            resources=tuple(_name(r, f"{prefix}resources") for r in resources),
            kind=_name(table.get("kind", "WEFT"), f"{prefix}kind"),
            tags=_texts(table.get("tags", []), f"{prefix}tags"),
            master=None if master is None else _master(master, f"{prefix}master"),
        )
    except InputError as error:
        if place and not error.place.startswith(place):
            raise InputError(f"{prefix}{error.place}", error.problem) from None
        raise


def job_to_dict(job: Job) -> Json:
    """Write one job, leaving out what has its default: `job_from_dict` reads the same job back."""
    data: Json = {"name": job.name}
    for key in (
        "queue",
        "user",
        "priority",
        "arrival_s",
        "max_task_attempts",
        "lifetime_s",
        "history_key",
        "input_mb",
        "kind",
    ):
        value = getattr(job, key)
        if value != Job.__dataclass_fields__[key].default:
            data[key] = value
    if job.resources:
        data["resources"] = list(job.resources)
    if job.tags:
        data["tags"] = list(job.tags)
    if job.master is None:
        data["stages"] = [_stage_to_dict(stage) for stage in job.stages]
    else:
        data["master"] = _master_to_dict(job.master)
    return data


def _master(data: object, place: str) -> MasterSpec:
    table = _table(data, place, _MASTER_KEYS)
    command = _command(table.get("command", []), f"{place}.command")
    environment = _table(table.get("environment", {}), f"{place}.environment")
    attempts = _integer(table.get("max_attempts", 0), f"{place}.max_attempts", 0)
    recorded = table.get("recorded")
    if recorded is not None and command:
        raise InputError(f"{place}.recorded", "what is recorded is run again without a command")
    return MasterSpec(
        demand=_demand(table.get("demand", {}), f"{place}.demand"),
        command=command,
        environment=tuple(
            (_name(key, f"{place}.environment"), _word(value, f"{place}.environment.{key}"))
            for key, value in environment.items()
        ),
        label=_name(table.get("label", ""), f"{place}.label", empty=True),
        max_attempts=min(attempts, ATTEMPTS_MAX),
        recorded=None if recorded is None else read_recording(recorded, f"{place}.recorded"),
    )


def _master_to_dict(master: MasterSpec) -> Json:
    data: Json = {"demand": dict(master.demand)}
    if master.command:
        data["command"] = list(master.command)
    if master.environment:
        data["environment"] = dict(master.environment)
    if master.label:
        data["label"] = master.label
    if master.max_attempts:
        data["max_attempts"] = master.max_attempts
    if master.recorded is not None:
        data["recorded"] = recording_to_dict(master.recorded)
    return data


def _texts(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(place, "expected a list of words")
    return tuple(_name(item, f"{place}[{i}]") for i, item in enumerate(value))


def _stage(data: object, place: str) -> Stage:
    table = _table(data, place, _STAGE_KEYS)
    name = _name(table.get("name"), f"{place}.name")
    if "tasks" not in table:
        raise InputError(f"{place}.tasks", f"stage {name!r} says no number of tasks")
    tasks, overrides = _tasks(table["tasks"], f"{place}.tasks")
    every = {
        key
        for key in ("duration_s", "demand")
        if overrides and all(getattr(o, key) is not None for o in overrides)
    }
    if "duration_s" not in table and "duration_s" not in every:
        raise InputError(f"{place}.duration_s", f"stage {name!r} says no duration")
    duration = table.get("duration_s")
    actual = table.get("actual_duration_s")
    actual_demand = table.get("actual_demand")
    gang = table.get("gang", False)
    if not isinstance(gang, bool):
        raise InputError(f"{place}.gang", f"expected true or false, got {gang!r}")
    return Stage(
        name=name,
        tasks=tasks,
        duration_s=(
            max((o.duration_s or 0.0 for o in overrides), default=0.0)
            if duration is None and overrides
            else read_amount(duration, f"{place}.duration_s")
        ),
        demand=_demand(table.get("demand", {}), f"{place}.demand"),
        parents=_parents(table.get("parents", []), f"{place}.parents"),
        actual_duration_s=(
            None
            if actual is None
            else read_number_per_task(actual, tasks, f"{place}.actual_duration_s")
        ),
        actual_demand=(
            None if actual_demand is None else _demand(actual_demand, f"{place}.actual_demand")
        ),
        prefer=_prefer(table.get("prefer"), f"{place}.prefer"),
        command=_command(table.get("command", []), f"{place}.command"),
        label=_name(table.get("label", ""), f"{place}.label", empty=True),
        gang=gang,
        overrides=overrides,
        checkpoint_s=read_amount(table.get("checkpoint_s", 0.0), f"{place}.checkpoint_s"),
    )


def _tasks(value: object, place: str) -> tuple[int, tuple[TaskOverride, ...]]:
    if isinstance(value, list):
        if not value:
            raise InputError(place, "a stage needs at least one task")
        return len(value), tuple(_override(v, f"{place}[{i}]") for i, v in enumerate(value))
    count = _integer(value, place, 1)
    if count > TASKS_MAX:
        raise InputError(place, f"{count} tasks are more than the limit of {TASKS_MAX}")
    return count, ()


def _override(data: object, place: str) -> TaskOverride:
    table = _table(data, place, _TASK_KEYS)
    duration, actual = table.get("duration_s"), table.get("actual_duration_s")
    demand, actual_demand = table.get("demand"), table.get("actual_demand")
    return TaskOverride(
        duration_s=None if duration is None else read_amount(duration, f"{place}.duration_s"),
        demand=None if demand is None else _demand(demand, f"{place}.demand"),
        actual_duration_s=(
            None if actual is None else read_amount(actual, f"{place}.actual_duration_s")
        ),
        actual_demand=(
            None if actual_demand is None else _demand(actual_demand, f"{place}.actual_demand")
        ),
        prefer=_prefer(table["prefer"], f"{place}.prefer") if "prefer" in table else None,
        command=_command(table["command"], f"{place}.command") if "command" in table else None,
    )


def _parents(value: object, place: str) -> tuple[Edge, ...]:
    if not isinstance(value, list):
        raise InputError(place, "expected a list of stage names")
    edges = []
    for i, item in enumerate(value):
        where = f"{place}[{i}]"
        if isinstance(item, str):
            edges.append(Edge(_name(item, where)))
            continue
        table = _table(item, where, {"stage", "edge", "pairs"})
        default = EdgeKind.PAIRS if "pairs" in table else EdgeKind.ALL_TO_ALL
        kind = table.get("edge", default.value)
        if kind not in {k.value for k in EdgeKind}:
            known = ", ".join(k.value for k in EdgeKind)
            raise InputError(f"{where}.edge", f"unknown edge kind {kind!r}; known: {known}")
        pairs = _pairs(table, kind, where)
        edges.append(Edge(_name(table.get("stage"), f"{where}.stage"), EdgeKind(kind), pairs))
    return tuple(edges)


def _pairs(table: Table, kind: str, place: str) -> TaskPairs:
    """Return the pairs of tasks of one edge; `Job` checks whether the stages have such tasks."""
    if kind != EdgeKind.PAIRS:
        if "pairs" in table:
            raise InputError(f"{place}.pairs", f"an edge of kind {kind!r} lists no pairs")
        return NO_PAIRS
    place = f"{place}.pairs"
    rows = table.get("pairs")
    if not isinstance(rows, list):
        raise InputError(place, "expected a list of [parent task, child task]")
    if len(rows) > EDGE_PAIRS_MAX:
        raise InputError(place, f"{len(rows)} are more than the limit of {EDGE_PAIRS_MAX}")
    for i, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) == 2 and all(_is_index(task) for task in row)):
            raise InputError(
                f"{place}[{i}]",
                f"expected [parent task, child task], numbered from 0, got {row!r:.60}",
            )
    try:
        return TaskPairs.of((above, below) for above, below in rows)
    except InputError as error:
        raise InputError(place, error.problem) from None


def _is_index(value: object) -> bool:
    return type(value) is int and 0 <= value < TASKS_MAX


def _demand(value: object, place: str) -> dict[str, float]:
    table = _table(value, place)
    for key in table:
        _name(key, f"{place} (the name of a resource)")
    return {key: read_amount(amount, f"{place}.{key}") for key, amount in table.items()}


def _prefer(value: object, place: str) -> Preference:
    if value is None:
        return NO_PREFERENCE
    table = _table(value, place, {"nodes", "racks"})
    names: dict[str, tuple[str, ...]] = {}
    for key in ("nodes", "racks"):
        items = table.get(key, [])
        if not isinstance(items, list):
            raise InputError(f"{place}.{key}", "expected a list of names")
        names[key] = tuple(_name(item, f"{place}.{key}[{i}]") for i, item in enumerate(items))
    return Preference(names["nodes"], names["racks"])


def _command(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(place, 'expected a list of words, as ["sh", "-c", "..."]')
    return tuple(_word(word, f"{place}[{i}]") for i, word in enumerate(value))


def _stage_to_dict(stage: Stage) -> Json:
    data: Json = {"name": stage.name}
    if stage.overrides:
        data["tasks"] = [_override_to_dict(o) for o in stage.overrides]
    else:
        data["tasks"] = stage.tasks
    data["duration_s"] = stage.duration_s
    data["demand"] = dict(stage.demand)
    if stage.parents:
        data["parents"] = [_edge_to_dict(edge) for edge in stage.parents]
    actual = stage.actual_duration_s
    if actual is not None:
        data["actual_duration_s"] = list(actual) if isinstance(actual, tuple) else actual
    if stage.actual_demand is not None:
        data["actual_demand"] = dict(stage.actual_demand)
    if stage.prefer != NO_PREFERENCE:
        data["prefer"] = _prefer_to_dict(stage.prefer)
    if stage.command:
        data["command"] = list(stage.command)
    if stage.label:
        data["label"] = stage.label
    if stage.gang:
        data["gang"] = True
    if stage.checkpoint_s:
        data["checkpoint_s"] = stage.checkpoint_s
    return data


def _edge_to_dict(edge: Edge) -> str | Json:
    if edge.kind is EdgeKind.ALL_TO_ALL:
        return edge.stage
    data: Json = {"stage": edge.stage, "edge": edge.kind.value}
    if edge.kind is EdgeKind.PAIRS:
        data["pairs"] = [[above, below] for above, below in edge.pairs]
    return data


def _override_to_dict(override: TaskOverride) -> Json:
    data: Json = {}
    for key in ("duration_s", "actual_duration_s"):
        if getattr(override, key) is not None:
            data[key] = getattr(override, key)
    for key in ("demand", "actual_demand"):
        if getattr(override, key) is not None:
            data[key] = dict(getattr(override, key))
    if override.prefer is not None:
        data["prefer"] = _prefer_to_dict(override.prefer)
    if override.command is not None:
        data["command"] = list(override.command)
    return data


def _prefer_to_dict(prefer: Preference) -> dict[str, list[str]]:
    data = {"nodes": list(prefer.nodes), "racks": list(prefer.racks)}
    return {key: names for key, names in data.items() if names}
