"""For tests only: values of any message, request or fact, drawn by Hypothesis from its types."""

import functools
import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_origin

import numpy as np
from hypothesis import strategies as st

from weft.model.job import Edge, EdgeKind, Job, Preference, Stage, TaskOverride, TaskPairs
from weft.model.plan import Plan, pri_scores
from weft.model.queues import RUNNING, STOPPED, Absolute, QueueSpec
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol import requests
from weft.tape.records import hints_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAME = st.text("abcdefgh_é", min_size=1, max_size=6)
AMOUNT = st.floats(0, 1e12, allow_nan=False)
NAMED = st.dictionaries(NAME, AMOUNT, max_size=2)
WIDE = st.integers(0, 2**63 - 1)
SIGNED = st.integers(-(2**31), 2**31 - 1)
COUNT = st.integers(0, 2**31 - 1)
INTEGERS = {
    "stage": st.integers(-1, 2**31 - 1),
    "task": st.integers(-1, 2**31 - 1),
    "index": st.integers(-1, 2**31 - 1),
    "exit_code": SIGNED,
    "priority": SIGNED,
    "containers": COUNT,
    "count": st.integers(1, 2**31 - 1),
}


def overrides(tasks: int) -> st.SearchStrategy[tuple[TaskOverride, ...]]:
    """Return what single tasks of a stage may say."""
    one = st.builds(
        TaskOverride,
        duration_s=st.none() | AMOUNT,
        demand=st.none() | st.dictionaries(NAME, AMOUNT, max_size=2),
        actual_duration_s=st.none() | AMOUNT,
        prefer=st.none() | st.builds(Preference, st.lists(NAME, max_size=2).map(tuple)),
        command=st.none() | st.lists(NAME, max_size=2).map(tuple),
    )
    return st.just(()) | st.lists(one, min_size=tasks, max_size=tasks).map(tuple)


@st.composite
def edges(draw: st.DrawFn, parent: Stage, tasks: int) -> Edge:
    """Draw an edge from a stage to one of so many tasks."""
    kind = draw(st.sampled_from(EdgeKind))
    if kind is not EdgeKind.PAIRS:
        return Edge(parent.name, kind)
    pair = st.tuples(st.integers(0, parent.tasks - 1), st.integers(0, tasks - 1))
    return Edge(parent.name, kind, TaskPairs.of(draw(st.sets(pair, min_size=1, max_size=4))))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Draw small jobs."""
    stages: list[Stage] = []
    for position in range(draw(st.integers(1, 3))):
        tasks = draw(st.integers(1, 3))
        parents = draw(st.sets(st.sampled_from(range(position)))) if position else set()
        stages.append(
            Stage(
                name=f"s{position}",
                tasks=tasks,
                duration_s=draw(AMOUNT),
                demand=draw(st.dictionaries(NAME, AMOUNT, max_size=2)),
                parents=tuple(draw(edges(stages[p], tasks)) for p in sorted(parents)),
                command=tuple(draw(st.lists(NAME, max_size=2))),
                gang=draw(st.booleans()),
                overrides=draw(overrides(tasks)),
            )
        )
    return Job(draw(NAME), tuple(stages), priority=draw(SIGNED), user=draw(NAME))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan of a few tasks."""
    tasks = draw(st.integers(0, 6))
    start_s = np.array(draw(st.lists(AMOUNT, min_size=tasks, max_size=tasks)), dtype=np.float64)
    order = np.array(draw(st.permutations(range(tasks))), dtype=np.int64)
    machine = np.zeros(tasks, dtype=np.int64)
    return Plan(draw(NAME), machine, start_s, start_s + 1.0, order, pri_scores(start_s))


@st.composite
def queue_trees(draw: st.DrawFn) -> QueueSpec:
    """Draw trees of one or two floors, with a setting of each kind."""

    def queue(name: str, part: float, below: bool) -> QueueSpec:
        children: list[QueueSpec] = []
        if below:
            names = draw(st.lists(NAME, max_size=3, unique=True))
            children = [queue(f"{name}{one}", 1 / len(names), False) for one in names]
        return QueueSpec(
            name,
            part,
            draw(st.floats(0, 1)),
            user_limit=draw(st.floats(0, 1)),
            user_limit_factor=draw(st.just(float("inf")) | st.floats(0.1, 9)),
            max_user_applications=draw(st.integers(-1, 9)),
            submit=draw(st.none() | st.lists(NAME, max_size=2).map(tuple)),
            administer=draw(st.lists(NAME, max_size=2).map(tuple)),
            priority=draw(SIGNED.filter(lambda number: number > -(2**31))),
            order=draw(st.sampled_from(["", "fair", "priority"])),
            labels=draw(st.dictionaries(NAME, st.tuples(st.floats(0, 1), st.floats(0, 1)))),
            absolute=draw(
                st.dictionaries(NAME | st.just(""), st.builds(Absolute, NAMED, NAMED), max_size=2)
            ),
            user_weights=draw(st.dictionaries(NAME, st.floats(0, 9), max_size=2)),
            state=draw(st.sampled_from([RUNNING, STOPPED])),
            children=tuple(children),
        )

    return queue("root", 1.0, True)


TYPES = st.lists(
    st.builds(ResourceType, NAME, st.sampled_from(list(Kind))),
    min_size=1,
    max_size=3,
    unique_by=lambda t: t.name,
).map(lambda items: ResourceTypes(tuple(items)))


@functools.cache
def strategy(kind: Any, name: str = "") -> st.SearchStrategy[Any]:  # noqa: C901, PLR0912
    """Return what a field of a type may hold, by its type and name."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Job:
        return jobs()
    if kind is QueueSpec:
        return queue_trees()
    if kind is ResourceTypes:
        return TYPES
    if origin in (types.UnionType, typing.Union):
        return st.one_of([strategy(a, name) for a in arguments])
    if origin is tuple and arguments[-1] is ...:
        return st.lists(strategy(arguments[0], name), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[COUNT if a is int else strategy(a, name) for a in arguments])
    if origin is requests.Page:
        return st.builds(
            requests.Page, st.lists(strategy(arguments[0]), max_size=3).map(tuple), TEXT
        )
    if origin is dict:
        return st.dictionaries(TEXT, strategy(arguments[1], name), max_size=3)
    if kind is int:
        return WIDE if name.endswith("_id") or name in WIDE_FIELDS else INTEGERS.get(name, COUNT)
    if kind is float:
        return st.floats(allow_nan=False)
    if kind is bool:
        return st.booleans()
    if kind is str:
        return TEXT
    if kind is type(None):
        return st.none()
    if kind is Hashable:
        # The keys of timers are hashable.
        return TEXT | st.tuples(TEXT, COUNT)
    if kind is Any and name == "request":
        return strategy(requests.ClientRequest)
    if origin is Mapping:
        # The records of a journal are mappings.
        return st.dictionaries(TEXT, COUNT | TEXT | st.lists(st.floats(0, 9), max_size=2))
    if kind is Plan:
        return plans()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if (kind, name) in WITHIN_ITSELF:
        return st.builds(kind, **own_fields(kind, {name}))
    return st.builds(kind, **own_fields(kind))


# Records that hold others of their kind: these hold none.
WITHIN_ITSELF = {(requests.QueueReport, "children"), (requests.ManagerReport, "members")}
WIDE_FIELDS = {"acks", "releases", "stop", "cluster_ts", "seed", "response_id", "request_id"}


def own_fields(kind: Any, leave_out: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """Return a strategy for each field of a record."""
    hints = hints_of(kind)
    names = [f.name for f in fields(kind)] if is_dataclass(kind) else kind._fields
    return {n: strategy(hints[n], n) for n in names if n not in leave_out}
