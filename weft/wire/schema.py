"""Records to and from protobuf messages that have the same fields, by the fields' names.

A record and a message that differ in a field are refused when their schema is made, so a field that
was forgotten on one side is seen at the first import. What makes one of the other is written as
code, with every field in line, when it is first used: that is as fast as by hand, and a process
compiles no more than it says and hears.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cached_property
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.queues import QueueSpec
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.wire import words_pb2
from weft.wire.codec_job import decode_job, decode_queues, encode_job, encode_queues

Way = Callable[[Any], Any]
# Values of these travel as JSON, in a field of the message that says so in its name.
_JSON: Mapping[object, tuple[Way, Way]] = {
    Job: (encode_job, decode_job),
    QueueSpec: (encode_queues, decode_queues),
}
_KINDS = (Kind.DIVISIBLE, Kind.RIGID)
_SCHEMAS: dict[tuple[type, type], "Schema"] = {}


class CodecError(ValueError):
    """A message of a peer that speaks another version, or is no peer at all."""


class Codec(NamedTuple):
    """Both directions of one record."""

    encode: Way
    decode: Way


class _Field(NamedTuple):
    """One field of a record: its type and default, and the field of the message."""

    name: str
    hint: Any
    default: Any
    there: FieldDescriptor


class Schema:
    """A record and its message: how each is made of the other."""

    def __init__(self, record: type, message: type[Message]) -> None:
        self.record, self.message = record, message
        self.fields = _fields(record, message)

    @cached_property
    def make(self) -> Way:
        """What returns the message of a record."""
        return self._maker(self.fields)

    @cached_property
    def read(self) -> Way:
        """What returns the record of a message; raises CodecError or InputError."""
        writer = _Writer(self)
        read: Way = writer.compiled(f"def made(m):\n return {writer.read(self, 'm')}")
        return read

    @cached_property
    def fill(self) -> Callable[[Message, Any], None]:
        """What fills a message; empty lists are not touched, as those of most messages are."""
        writer = _Writer(self)
        fill: Callable[[Message, Any], None] = writer.compiled(writer.filled(self))
        return fill

    def encode(self, value: Any) -> Message:
        """Return the message of a record; raises InputError for what the wire does not hold."""
        try:
            made: Message = self.make(value)
        except ValueError as error:
            raise InputError(self._unfit(value), str(error)) from error
        return made

    def _unfit(self, value: Any) -> str:
        """Return the field whose value the wire does not hold: a number out of its range."""
        for each in self.fields:
            try:
                self._maker([each])(value)
            except ValueError:
                return each.name
        return ""

    def _maker(self, told: list["_Field"]) -> Way:
        writer = _Writer(self)
        made: Way = writer.compiled(f"def made(m):\n return {writer.made(self, 'm', told)}")
        return made


def _fields(record: type, message: type[Message]) -> list[_Field]:
    """Pair the fields of both; raises TypeError where one has others."""
    hints = get_type_hints(record)
    if is_dataclass(record):
        defaults = {each.name: each.default for each in fields(record)}
    else:
        defaults = dict.fromkeys(hints, MISSING)
    descriptor: Any = message.DESCRIPTOR
    theirs: dict[str, FieldDescriptor] = dict(descriptor.fields_by_name)
    names = {name: f"{name}_json" if hints[name] in _JSON else name for name in defaults}
    if odd := sorted(set(names.values()) ^ theirs.keys()):
        raise TypeError(f"{record.__name__} and {descriptor.full_name} differ in {', '.join(odd)}")
    return [_Field(name, hints[name], defaults[name], theirs[names[name]]) for name in names]


class _Writer:
    """Writes expressions, and keeps what they name."""

    def __init__(self, top: Schema) -> None:
        self._top = top
        self._loops = 0
        self.scope: dict[str, Any] = {}

    def compiled(self, source: str) -> Any:
        """Return the function `made` of a source."""
        exec(source, self.scope)
        return self.scope["made"]

    def made(self, schema: Schema, value: str, told: list[_Field]) -> str:
        """Return the message of the record `value`, with the fields that are told."""
        parts = [f"{one.there.name}={self._put(one, f'{value}.{one.name}')}" for one in told]
        return f"{self._name(schema.message)}({', '.join(parts)})"

    def read(self, schema: Schema, item: str) -> str:
        """Return the record of the message `item`."""
        found = [self._get(each, item) for each in schema.fields]
        return f"{self._name(schema.record)}({', '.join(found)})"

    def filled(self, schema: Schema) -> str:
        """Return a function that fills a message."""
        lines = ["def made(to, m):"]
        for each in schema.fields:
            there, value = f"to.{each.there.name}", f"m.{each.name}"
            if _repeats(each):
                lines += [f" if {value}:", f"  {there}.extend({self._put(each, value)})"]
            elif each.there.message_type is not None:
                (inner,) = each.there.message_type.fields
                lines += [f" if {value} is not None:", f"  {there}.SetInParent()"]
                lines += [f"  {there}.{inner.name}.extend({value})"]
            else:
                lines.append(f" {there} = {self._put(each, value)}")
        return "\n".join(lines)

    def _name(self, value: Any) -> str:
        name = f"s{len(self.scope)}"
        self.scope[name] = value
        return name

    def _each(self) -> str:
        self._loops += 1
        return f"e{self._loops}"

    def _put(self, each: _Field, value: str) -> str:
        """Return what a field of the message is set to."""
        if each.hint in _JSON:
            return f"{self._name(_JSON[each.hint][0])}({value})"
        if each.there.message_type is None:
            return value
        kind, one = GetMessageClass(each.there.message_type), self._each()
        names = [inner.name for inner in each.there.message_type.fields]
        made = self._name(kind)
        if not _repeats(each):
            return f"None if {value} is None else {made}({names[0]}={value})"
        if each.hint is ResourceTypes:
            return f"{self._name(_encode_types)}({value})"
        if get_origin(each.hint) in (dict, Mapping):
            return f"[{made}({names[0]}=k, {names[1]}=v) for k, v in {value}.items()]"
        (inside, *_) = get_args(each.hint)
        if get_origin(inside) is not tuple:
            if inside is self._top.record:
                return f"[made({one}) for {one} in {value}]"
            schema = schema_of(inside, kind)
            return f"[{self.made(schema, one, schema.fields)} for {one} in {value}]"
        if get_args(inside)[-1] is ...:
            return f"[{made}({names[0]}={one}) for {one} in {value}]"
        told = ", ".join(f"{name}={one}_{name}" for name in names)
        return f"[{made}({told}) for {', '.join(f'{one}_{name}' for name in names)} in {value}]"

    def _get(self, each: _Field, item: str) -> str:
        """Return the value of a field of the record."""
        value = f"{item}.{each.there.name}"
        if each.hint in _JSON:
            return f"{self._name(_JSON[each.hint][1])}({value})"
        if each.there.message_type is None:
            return self._got(each, item, value)
        names = [inner.name for inner in each.there.message_type.fields]
        if not _repeats(each):
            return f"tuple({value}.{names[0]}) if {item}.HasField('{each.there.name}') else None"
        one = self._each()
        if each.hint is ResourceTypes:
            return f"{self._name(_decode_types)}({value})"
        if get_origin(each.hint) in (dict, Mapping):
            return f"{{e.{names[0]}: e.{names[1]} for e in {value}}}"
        (inside, *_) = get_args(each.hint)
        if inside is self._top.record:
            return f"tuple([made({one}) for {one} in {value}])"
        if get_origin(inside) is not tuple:
            inner = schema_of(inside, GetMessageClass(each.there.message_type))
            return f"tuple([{self.read(inner, one)} for {one} in {value}])"
        if get_args(inside)[-1] is ...:
            return f"tuple([tuple({one}.{names[0]}) for {one} in {value}])"
        found = [
            f"tuple({one}.{name})" if get_origin(hint) is tuple else f"{one}.{name}"
            for name, hint in zip(names, get_args(inside), strict=True)
        ]
        return f"tuple([({', '.join(found)},) for {one} in {value}])"

    def _got(self, each: _Field, item: str, value: str) -> str:
        """Return a value that is no message."""
        if get_origin(each.hint) is tuple:
            return f"tuple({value})"
        if isinstance(each.hint, type) and issubclass(each.hint, Enum):
            return f"{self._name(_of_number(each.hint))}({value})"
        if each.there.has_presence:
            return f"({value} if {item}.HasField('{each.there.name}') else {each.default!r})"
        # A container is one where a peer of another version says no number.
        return f"({value} or 1)" if (each.name, each.default) == ("count", 1) else value


def _repeats(each: _Field) -> bool:
    if each.there.message_type is None:
        return get_origin(each.hint) is tuple
    return NoneType not in get_args(each.hint)


def _of_number(kind: type[Enum]) -> Way:
    """Return what finds a member by its place: a lookup is far cheaper than `kind(value)`."""
    members = tuple(kind)

    def member(number: int) -> Enum:
        if 0 <= number < len(members):
            return members[number]
        raise CodecError(f"unknown {kind.__name__} {number}")

    return member


def _encode_types(types: ResourceTypes) -> list[words_pb2.ResourceType]:
    """Return the resource types in declared order."""
    return [
        words_pb2.ResourceType(
            name=each.name, kind=words_pb2.ResourceKind.ValueType(_KINDS.index(each.kind))
        )
        for each in types
    ]


def _decode_types(items: Iterable[words_pb2.ResourceType]) -> ResourceTypes:
    """Return the resource types in declared order; raises CodecError for an unknown kind."""
    types = []
    for item in items:
        if not 0 <= item.kind < len(_KINDS):
            raise CodecError("unknown kind of resource")
        types.append(ResourceType(item.name, _KINDS[item.kind]))
    return ResourceTypes(tuple(types))


def schema_of(record: type, message: type[Message]) -> Schema:
    """Return the schema of a record; raises TypeError where the message has other fields."""
    found = _SCHEMAS.get((record, message))
    if found is None:
        found = _SCHEMAS[record, message] = Schema(record, message)
    return found


def codec_of(record: type, message: type[Message]) -> Codec:
    """Return both directions of a record; raises TypeError where the message has other fields."""
    schema = schema_of(record, message)
    # What reads a message is compiled when the first one comes.
    return Codec(schema.encode, lambda item: schema.read(item))  # noqa: PLW0108


def page_of(page: type, record: type, batch: type[Message], message: type[Message]) -> Codec:
    """Return the codec of a page of records: `items`, and where the `next` begins."""
    one = codec_of(record, message)
    descriptor: Any = batch.DESCRIPTOR
    of_members = "missing" in descriptor.fields_by_name

    def encode(value: Any) -> Message:
        told = {"missing": value.missing} if of_members else {}
        return batch(items=[one.encode(item) for item in value.items], next=value.next, **told)

    def decode(item: Any) -> Any:
        items = tuple([one.decode(each) for each in item.items])
        return page(items, item.next, tuple(item.missing) if of_members else ())

    return Codec(encode, decode)


class OneOf:
    """The messages that may stand in one item of a batch, each in a field of its own."""

    def __init__(self, choice: str, whose: str, **schemas: Schema) -> None:
        self._choice, self._whose = choice, whose
        self._by_name = schemas
        self._by_record = {schema.record: (name, schema) for name, schema in schemas.items()}

    def fill(self, item: Any, message: Any) -> None:
        """Fill an item with a message."""
        name, schema = self._by_record[type(message)]
        schema.fill(getattr(item, name), message)

    def read(self, item: Any) -> Any:
        """Return the message of an item; raises CodecError where there is none."""
        name = item.WhichOneof(self._choice)
        if name is None:
            raise CodecError(f"{self._whose} that says nothing: another version?")
        return self._by_name[name].read(getattr(item, name))
