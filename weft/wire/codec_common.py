"""What the codecs of all streams share: batches of messages, and what their peers show."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from weft.model.errors import InputError
from weft.wire.schema import CodecError
from weft.wire.tokens import Shown

_T = TypeVar("_T")
# Told of a message of a batch that was left out, and why.
Refuse = Callable[[Exception], None]


def decode_each(
    items: Iterable[Any], decode: Callable[[Any], _T], refuse: Refuse | None = None
) -> list[_T]:
    """Decode a batch.

    One message that is not understood is told to `refuse` and left out, as the others of the batch
    may be of other senders; without `refuse` CodecError is raised.
    """
    if refuse is None:
        return [decode(item) for item in items]
    messages = []
    for item in items:
        try:
            messages.append(decode(item))
        except (CodecError, InputError) as error:
            refuse(error)
    return messages


def shown(tokens: Iterable[bytes]) -> list[Shown]:
    """Return the tokens of a batch, which come before its messages."""
    found = tuple(tokens)
    return [Shown(found)] if found else []
