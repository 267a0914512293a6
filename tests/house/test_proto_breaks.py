"""The comparison with the released protos finds what would break a caller, and nothing else."""

import shutil
from pathlib import Path

import pytest

from tools.proto_breaks import PROTO, RELEASED, breaks


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("client.proto", "rpc SetExpiry(SetExpiryRequest) returns (Done);", "", "SetExpiry"),
        ("client.proto", "string name = 2;", "string title = 2;", "name"),
        ("client.proto", "string name = 2;", "bytes name = 2;", "type"),
        ("tracker.proto", "fixed64 boot = 8;", "string boot = 8;", "boot"),
        ("client.proto", "string name = 2;", "string name = 2;\n  bool more = 999;", ""),
        ("tracker.proto", "fixed64 boot = 8;", "fixed64 start = 8;", ""),
    ],
)
def test_what_breaks_a_caller_is_found(
    tmp_path: Path, file: str, old: str, new: str, found: str
) -> None:
    for source in PROTO.glob("*.proto"):
        shutil.copy2(source, tmp_path)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    lines = breaks(tmp_path, RELEASED)
    assert bool(lines) == bool(found), lines
    assert found in "\n".join(lines)
