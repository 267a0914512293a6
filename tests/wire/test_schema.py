"""A record and its message must have the same fields; what is forgotten is seen at once."""

from dataclasses import dataclass

import pytest

from weft.protocol.requests import Done
from weft.wire import client_pb2 as pb
from weft.wire.schema import codec_of


@dataclass(frozen=True)
class Other:
    """As `Done`, with a field that the message lacks."""

    state: str
    more: int


def test_a_field_on_one_side_only_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Other and .*Done differ in more"):
        codec_of(Other, pb.Done)
    assert codec_of(Done, pb.Done).decode(pb.Done(state="KILLED")) == Done("KILLED")
