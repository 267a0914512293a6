"""Records to and from protobuf messages that have the same fields, by the fields' names.

For the clients' face, which is cold. A record and a message that differ in a field are refused when
the codec is made, so a field that was forgotten on one side is seen at the first import.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from weft.model.errors import InputError

Way = Callable[[Any], Any]


class Codec(NamedTuple):
    """Both directions of one record."""

    encode: Way
    decode: Way


_SAME = Codec(lambda value: value, lambda value: value)
_MANY = Codec(lambda values: values, tuple)


def codec_of(record: type, message: type[Message]) -> Codec:
    """Return the codec of a dataclass; raises TypeError where the message has other fields."""
    descriptor: Any = message.DESCRIPTOR
    own, theirs = {field.name for field in fields(record)}, set(descriptor.fields_by_name)
    if own != theirs:
        odd = ", ".join(sorted(own ^ theirs))
        raise TypeError(f"{record.__name__} and {descriptor.full_name} differ in {odd}")
    hints = get_type_hints(record)
    plan: list[tuple[str, Way, Way]] = []

    def encode(value: Any) -> Message:
        told = {name: there(getattr(value, name)) for name, there, _ in plan}
        try:
            return message(**told)
        except ValueError as error:
            raise InputError(_unfit(message, told), str(error)) from error

    def decode(item: Any) -> Any:
        return record(**{name: back(getattr(item, name)) for name, _, back in plan})

    found = Codec(encode, decode)
    for name, field in descriptor.fields_by_name.items():
        # The codec of a tree is the one being made.
        own_kind = record in get_args(hints[name])
        each = found if own_kind else None
        plan.append((name, *_of_field(field, hints[name], each)))
    return found


def _unfit(message: type[Message], told: Mapping[str, Any]) -> str:
    """Return the field whose value the wire does not hold, such as a number out of its range."""
    for name, value in told.items():
        try:
            message(**{name: value})
        except ValueError:
            return name
    return ""


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


def _of_field(field: FieldDescriptor, hint: Any, each: Codec | None) -> Codec:
    if field.message_type is None:
        return _MANY if get_origin(hint) is tuple else _SAME
    made: type[Message] = GetMessageClass(field.message_type)
    names = [inner.name for inner in field.message_type.fields]
    if get_origin(hint) in (dict, Mapping):
        return _mapping(made, *names)
    inside = get_args(hint)[0]
    if get_origin(inside) is tuple:
        return Codec(
            lambda rows: [made(**dict(zip(names, row, strict=True))) for row in rows],
            lambda items: tuple(tuple(getattr(item, name) for name in names) for item in items),
        )
    one = each or codec_of(inside, made)
    return Codec(
        lambda values: [one.encode(value) for value in values],
        lambda items: tuple(one.decode(item) for item in items),
    )


def _mapping(made: type[Message], key: str, value: str) -> Codec:
    """Return the codec of a mapping: a list of pairs, in its order."""
    return Codec(
        lambda amounts: [made(**{key: name, value: amount}) for name, amount in amounts.items()],
        lambda items: {getattr(item, key): getattr(item, value) for item in items},
    )
