"""Messages and events in few bytes: their types say how, field by field.

A codec is made from a type hint. Of a record only those fields are told that are not as they were
in the last record of the same sender. Decoding gives what was encoded, bit by bit; whole numbers in
a field of floats come back as floats.
"""

import ast
import json
import sys
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from math import copysign
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from weft.model.job import Job
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.model.plan import Plan
from weft.model.queues import QueueSpec, queues_from_dict, queues_to_dict
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol.effects import ClientRequested
from weft.protocol.messages import AskType, Outcome
from weft.protocol.requests import ClientRequest
from weft.tape.columns import (
    SENDERS_MAX,
    BlobColumn,
    BoolColumn,
    Codec,
    Context,
    EnumColumn,
    FloatColumn,
    FractionColumn,
    IdColumn,
    IntColumn,
    NameColumn,
    PlainColumn,
    SenderIntColumn,
    TextColumn,
    as_is,
)
from weft.tape.compound import (
    ChoiceColumn,
    IntsColumn,
    ManyColumn,
    NothingColumn,
    PairColumn,
    RepeatColumn,
    RunsColumn,
)
from weft.tape.streams import Source, Streams, put_uint
from weft.tape.vectors import SumColumn, VectorColumn

_CONTAINER_FIELDS = frozenset(
    {"container_id", "containers", "releases", "stop", "spare", "container"}
)
_REPEATED_FIELDS = frozenset(
    {"attempt_id", "app_id", "boot", "token", "cluster_ts", "seed", "life", "over"}
)
_COUNTER_FIELDS = frozenset({"request_id", "response_id", "acks"})
# These vectors mostly equal the last one of their sender.
_STEADY_VECTOR_FIELDS = frozenset({"use", "share"})
_DEMAND_SUM_FIELDS = _STEADY_VECTOR_FIELDS | {"headroom"}
_EXACT = frozenset({int, str, bool, tuple[int, ...], tuple[str, ...], Outcome, AskType})
_TIMES = "actual_duration_s"
_SENDER_FIELDS = ("node_id", "attempt_id")


class _Record:
    """A record: a bit for each field that is not as before, then those fields.

    "Before" is the sender's last record of the type; without senders, the last of the column.
    """

    def __init__(
        self, kind: type, columns: Mapping[str, Codec], context: Context | None, streams: Streams
    ) -> None:
        self._kind = kind
        self._masks = streams.new()
        self._streams = [streams.new() for _ in columns]
        self._codecs: list[Codec] = list(columns.values())
        self._zeros = tuple(codec.zero for codec in self._codecs)
        self.zero: Any = None
        self._key = -1
        if context is not None:
            self._key = next((i for i, name in enumerate(columns) if name in _SENDER_FIELDS), -1)
        self._context = context or Context()
        self._last: dict[Any, tuple[Any, ...]] = {}
        self._names = list(columns)

    def _before(self, sender: Any) -> tuple[Any, ...]:
        self._context.sender = sender
        if len(self._last) > SENDERS_MAX:
            self._last.clear()
        return self._last.get(sender, self._zeros)

    @cached_property
    def put(self) -> Callable[[bytearray, Any], None]:
        """The function that appends one; a reader needs none.

        It is written out field by field, as dataclasses write theirs. It runs for every event of a
        live process, and a loop over the fields takes twice as long.
        """
        names = self._names
        places = range(len(names))
        key = self._key
        lines = ["def put(out, value):"]
        lines += [f"    a{i} = value.{name}" for i, name in enumerate(names)]
        lines += [f"    put{key}(o{key}, a{key})"] if key >= 0 else []
        lines += [f"    before = before_of({f'a{key}' if key >= 0 else None})", "    mask = 0"]
        if names:
            lines += [f"    {''.join(f'b{i}, ' for i in places)} = before"]
        for i in places:
            if i != key:
                lines += [f"    if {_changed(self._codecs[i], i)}:", f"        mask |= {1 << i}"]
        lines += ["    if mask < 128:", "        masks.append(mask)"]
        lines += ["    else:", "        put_uint(masks, mask)", "    if mask:"]
        lines += [
            f"        if mask & {1 << i}:\n            put{i}(o{i}, a{i})"
            for i in places
            if i != key
        ]
        lines += ["        pass"]
        held = "".join(f"a{i}, " for i in places)
        lines += [f"    last[{f'a{key}' if key >= 0 else None}] = ({held})"]
        space: dict[str, Any] = {f"put{i}": codec.put for i, codec in enumerate(self._codecs)}
        space |= {f"o{i}": stream.out for i, stream in enumerate(self._streams)}
        space |= {"masks": self._masks.out}
        space |= {"before_of": self._before, "put_uint": put_uint, "last": self._last}
        exec(_code("\n".join(lines)), space)
        made: Callable[[bytearray, Any], None] = space["put"]
        return made

    def get(self, source: Source) -> Any:
        """Read the record that was appended; its columns have sources of their own."""
        key, sender = self._key, None
        streams = self._streams
        if key >= 0:
            sender = self._codecs[key].get(streams[key].source)
        values = list(self._before(sender))
        if key >= 0:
            values[key] = sender
        mask, place = self._masks.source.uint(), 0
        while mask:
            if mask & 1:
                values[place] = self._codecs[place].get(streams[place].source)
            mask >>= 1
            place += 1
        self._last[sender] = tuple(values)
        return self._kind(*values)


@cache
def _code(lines: str) -> types.CodeType:
    """Compile what is made of field names only; several writers have the same."""
    return compile(lines, "<record>", "exec")


def _changed(codec: Codec, i: int) -> str:
    """Return the test whether field i has to be said. Of tuples only empty ones are compared."""
    if isinstance(codec, FloatColumn | FractionColumn):
        return f"a{i} is not b{i} and (a{i} != b{i} or a{i} == 0 and str(a{i}) != str(b{i}))"
    if isinstance(
        codec,
        IntColumn | SenderIntColumn | NameColumn | IdColumn | BoolColumn | TextColumn | EnumColumn,
    ):
        return f"a{i} is not b{i} and a{i} != b{i}"
    return f"a{i} is not b{i} and not (a{i} == () == b{i})"


# -- the codecs of types ---------------------------------------------------------------------------


def codec_of(kind: Any, name: str = "", context: Context | None = None) -> Codec:
    """Return the codec of a type hint, for a field of a name; raises TypeError for one without."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        kinds = tuple(get_origin(one) or one for one in arguments)
        return ChoiceColumn(kinds, [codec_of(one, name, context) for one in arguments])
    if origin is tuple:
        if arguments[-1] is not ...:
            return PairColumn([codec_of(one, name, context) for one in arguments])
        if arguments[0] is float:
            vectors = SumColumn if name in _DEMAND_SUM_FIELDS else VectorColumn
            return vectors(context if name in _STEADY_VECTOR_FIELDS else None)
        item = codec_of(arguments[0], name, context)
        if context is not None and _is_record(arguments[0]):
            run_of = _run_of(arguments[0])
            same = _same_of(arguments[0])
            return RepeatColumn(item, same) if run_of is None else RunsColumn(item, same, run_of)
        return IntsColumn() if name == "tasks" and arguments[0] is int else ManyColumn(item)
    if origin in (dict, Mapping) or kind is Any:
        return PlainColumn(dict, dict) if arguments[1:] == (float,) else BlobColumn()
    if kind is int:
        return _int_codec(name, context)
    if kind is float and name == "progress" and context is not None:
        return FractionColumn(context)
    if kind is float:
        return FloatColumn(ticks=name == "now")
    if kind is Hashable:
        return PlainColumn(as_is, _hashable)
    special = _SPECIAL.get(kind)
    if special is not None:
        return special()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return EnumColumn(kind)
    if isinstance(kind, type):
        return record_of(kind, None, context)
    raise TypeError(f"no codec for {kind!r}")


def record_of(kind: type, outer: Context | None, inner: Context | None) -> Codec:
    """Return the codec of a record; with `outer` it is compared with the last of its sender."""
    hints = dict(hints_of(kind))
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else _named(kind)
    if kind is ClientRequested:
        hints["request"] = ClientRequest
    made = {name: codec_of(hints[name], name, inner) for name in names}
    return _Record(kind, made, outer, (inner or Context()).streams)


@cache
def hints_of(kind: type) -> Mapping[str, Any]:
    """Return the types of a record's fields, by name, in order.

    A compiled class has forgotten what its tuples hold; its source, which lies beside, has not.
    """
    module = sys.modules[kind.__module__]
    file = Path(str(module.__file__))
    if file.suffix == ".py":
        return get_type_hints(kind)
    tree = ast.parse(file.with_name(f"{kind.__module__.rpartition('.')[2]}.py").read_text())
    (found,) = (
        one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == kind.__name__
    )
    said = [one for one in found.body if isinstance(one, ast.AnnAssign)]
    return {
        ast.unparse(one.target): eval(ast.unparse(one.annotation), vars(module)) for one in said
    }


def _is_record(kind: Any) -> bool:
    """Return whether a type is a record, or one of several."""
    several = get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)
    return all(isinstance(one, type) and is_dataclass(one) for one in several)


@cache
def _same_of(kind: Any) -> Callable[[Any, Any], bool]:
    """Return what tells whether two records are equal, bit by bit (0.0 is not -0.0)."""
    several = get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)
    floats: dict[type, list[str]] = {}
    vectors: dict[type, list[str]] = {}
    for one in several:
        hints = hints_of(one)
        floats[one] = [name for name, hint in hints.items() if hint is float]
        vectors[one] = [name for name, hint in hints.items() if hint not in _EXACT | {float}]

    def same(left: Any, right: Any) -> bool:
        if left is right:
            return True
        kind = type(left)
        if kind is not type(right) or left != right:
            return False
        for name in floats[kind]:
            amount = getattr(left, name)
            if amount == 0 and str(amount) != str(getattr(right, name)):
                return False
        return all(
            (held := getattr(left, name)) == () or repr(held) == repr(getattr(right, name))
            for name in vectors[kind]
        )

    return same


@cache
def _run_of(kind: Any) -> Callable[[Sequence[Any], int, int], tuple[int, int]] | None:
    """Return the function that finds where a run of identical containers ends (`RunsColumn`).

    None for records that are not of a container and a task. Written out field by field: it runs for
    every end of a task.
    """
    hints = hints_of(kind) if isinstance(kind, type) else {}
    if not {"container_id", "task"} <= hints.keys():
        return None
    others = {name: hint for name, hint in hints.items() if name not in ("container_id", "task")}
    lines = [
        "def run_of(records, at, most):",
        "    a = records[at]",
        "    at += 1",
        "    if at >= most: return at, 0",
        "    number, task, step = a.container_id, a.task, records[at].task - a.task",
        "    if step != 0 and step != 1: return at, 0",
        *[f"    a{place} = a.{name}" for place, name in enumerate(others)],
        "    first = at",
        "    while at < most:",
        "        b = records[at]",
        "        number += 1",
        "        task += step",
        "        if b.container_id != number or b.task != task: break",
    ]
    signs = lines.index("    first = at")
    for place, (name, hint) in enumerate(others.items()):
        left, right = f"a{place}", "c"
        if hint is float:
            test = f"{left} == {right} and ({left} or s{place} == copysign(1, {right}))"
            lines.insert(signs, f"    s{place} = copysign(1, {left})")
        elif hint in (int, str, bool) or (isinstance(hint, type) and issubclass(hint, Enum)):
            test = f"{left} == {right}"
        else:
            test = f"{left} == () == {right}"
        lines += [f"        c = b.{name}", f"        if c is not {left} and not ({test}): break"]
    lines += ["        at += 1", "    return at, step if at > first else 0"]
    space: dict[str, Any] = {"copysign": copysign}
    # The code is made of field names only.
    exec("\n".join(lines), space)
    made: Callable[[Sequence[Any], int, int], tuple[int, int]] = space["run_of"]
    return made


def _named(kind: type) -> list[str]:
    names = getattr(kind, "_fields", None)
    if names is None:
        raise TypeError(f"no codec for {kind!r}")
    return list(names)


def _int_codec(name: str, context: Context | None) -> Codec:
    if name in _CONTAINER_FIELDS:
        return IdColumn()
    if name in _REPEATED_FIELDS:
        return NameColumn()
    if name in _COUNTER_FIELDS and context is not None:
        return SenderIntColumn(context)
    return IntColumn()


def _hashable(data: Any) -> Any:
    return tuple(_hashable(one) for one in data) if isinstance(data, list) else data


class _Plan:
    """What a master takes from a plan: its planner, makespan, order and scores.

    A plan may have 100,000 tasks, so numpy does the work: steps of the order and numbers of scores,
    each score said once, in the bytes of whole columns (the lowest bytes of all first).
    """

    zero: Any = None

    def put(self, out: bytearray, plan: Plan) -> None:
        order = np.asarray(plan.order, dtype=np.int64)
        steps = np.diff(order, prepend=-1) - 1
        scores = np.asarray(plan.pri_score, dtype=np.float64)[order]
        bits, first, numbers = np.unique(
            scores.view(np.int64), return_index=True, return_inverse=True
        )
        # Scores are written in order of their first occurrence.
        rank = np.argsort(first)
        place = np.empty_like(rank)
        place[rank] = np.arange(rank.size)
        head = {"planner": plan.planner, "makespan_s": plan.makespan_s, "made": plan.candidates}
        data = json.dumps(head).encode()
        for size in (len(data), order.size, bits.size):
            put_uint(out, size)
        out += data
        out += _planes(steps.astype("<i4"))
        out += _planes(np.diff(place[numbers], prepend=0).astype("<i4"))
        score = FloatColumn()
        for one in bits[rank].view(np.float64).tolist():
            score.put(out, one)

    def get(self, source: Source) -> Plan:
        size, tasks, kinds = source.uint(), source.uint(), source.uint()
        head = json.loads(source.take(size))
        order = np.cumsum(_of_planes(source.take(4 * tasks)).astype(np.int64) + 1) - 1
        numbers = np.cumsum(_of_planes(source.take(4 * tasks)).astype(np.int64))
        score, scores = FloatColumn(), np.zeros(tasks)
        scores[order] = np.array([score.get(source) for _ in range(kinds)])[numbers]
        start_s = np.zeros(tasks)
        end_s = np.full(tasks, head["makespan_s"], dtype=np.float64)
        machine = np.zeros(tasks, dtype=np.int64)
        return Plan(head["planner"], machine, start_s, end_s, order, scores, head["made"])


class _JobCodec:
    """A job as its file says it, but for the times that its tasks truly take: those as numbers."""

    zero: Any = None

    def __init__(self) -> None:
        self._blob, self._times = BlobColumn(), FloatColumn()

    def put(self, out: bytearray, job: Job) -> None:
        data = job_to_dict(job)
        taken = []
        for stage in data.get("stages", ()):
            times = stage.get(_TIMES)
            if isinstance(times, list) and all(type(one) is float for one in times):
                taken.append(times)
                stage[_TIMES] = len(times)
        self._blob.put(out, data)
        for times in taken:
            for one in times:
                self._times.put(out, one)

    def get(self, source: Source) -> Job:
        data = self._blob.get(source)
        for stage in data.get("stages", ()):
            count = stage.get(_TIMES)
            if isinstance(count, int):
                if not 0 <= count <= len(source.data) - source.at:
                    # A time takes at least one byte.
                    raise ValueError("the tape has a stage without end")
                stage[_TIMES] = [self._times.get(source) for _ in range(count)]
        return job_from_dict(data)


class _QueuesCodec:
    """A tree of queues as a cluster file says it."""

    zero: Any = None

    def __init__(self) -> None:
        self._blob = BlobColumn()

    def put(self, out: bytearray, queues: QueueSpec) -> None:
        self._blob.put(out, queues_to_dict(queues))

    def get(self, source: Source) -> QueueSpec:
        return queues_from_dict(self._blob.get(source))


def _planes(numbers: np.ndarray) -> bytes:
    return numbers.view(np.uint8).reshape(-1, 4).T.tobytes()


def _of_planes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8).reshape(4, -1).T.copy().view("<i4").ravel()


def _types_to_data(resources: ResourceTypes) -> list[tuple[str, str]]:
    return [(one.name, one.kind.value) for one in resources]


def types_from_data(data: list[tuple[str, str]]) -> ResourceTypes:
    """Return resource types as (name, kind) pairs say them."""
    return ResourceTypes(tuple(ResourceType(name, Kind(kind)) for name, kind in data))


_SPECIAL: dict[Any, Callable[[], Codec]] = {
    bool: BoolColumn,
    str: TextColumn,
    type(None): NothingColumn,
    Plan: _Plan,
    Job: _JobCodec,
    QueueSpec: _QueuesCodec,
    ResourceTypes: lambda: PlainColumn(_types_to_data, types_from_data),
}
