"""Documents are read strictly: whatever is wrong is one InputError with file and place."""

import gzip
import json
import time
import tracemalloc
from pathlib import Path

import cramjam
import pytest

from weft.model.errors import InputError
from weft.workloads.documents import load_document, load_documents, parse_json_values, read_lines

JOB = b'{"name": "a", "stages": [{"name": "s", "tasks": 2, "duration_s": 1}]}'


def write(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
def test_the_compression_is_told_by_content_not_by_name(tmp_path, pack):
    assert load_document(write(tmp_path, "a.json", pack(JOB))) == json.loads(JOB)


def test_zstd_frames_one_after_the_other_are_one_file(tmp_path):
    skipped = b"\x50\x2a\x4d\x18\x02\x00\x00\x00ab"
    packed = skipped + zstd(JOB[:20]) + skipped + zstd(JOB[20:])
    assert load_document(write(tmp_path, "a.json.zst", packed)) == json.loads(JOB)


BAD_JSON = {
    "syntax": (b'{"a": 1,\n "b": }', r"line 2 column 7: not valid JSON"),
    "cut off": (b'{"a": [1, 2', r"ends too early"),
    "empty": (b"", r"line 1 column 1: .*ends too early"),
    "key twice": (b'{"stages": [{"a": 1, "a": 2}]}', r": stages\[0\]: key 'a' occurs twice"),
    "nan": (b'{"stages": [{"d": NaN}]}', r"stages\[0\]\.d: NaN is not a number"),
    "infinity": (b"[-Infinity]", r"\[0\]: -Infinity is not a number"),
    "not utf-8": (b'{\n"a": "\xff"}', r"line 2: byte 0xff is not UTF-8"),
    "half a pair": (b'{"a": "\\ud800"}', r"a: half a surrogate pair"),
    "nested": (b"[" * 200_000, r"nested too deeply"),
    "digits": (b"[1" + b"0" * 5000 + b"]", r"digits"),
    "damaged gzip": (gzip.compress(JOB * 9)[:-9], r"compressed data is damaged"),
    "damaged zstd": (zstd(JOB * 9)[:-4], r"compressed data is damaged"),
    "garbage after gzip magic": (b"\x1f\x8bxx", r"compressed data is damaged"),
    "garbage after zstd magic": (b"\x28\xb5\x2f\xfd", r"compressed data is damaged"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json_names_file_and_place(tmp_path, case):
    data, message = BAD_JSON[case]
    with pytest.raises(InputError, match=message) as caught:
        load_document(write(tmp_path, "bad.json", data))
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_YAML = {
    "alias": (b"a: &x [1]\nb: *x\n", r"line 2 column 4: aliases"),
    "bomb": (b"a: &a [x,x]\nb: &b [*a,*a]\n", r"aliases"),
    "recursive": (b"&a [*a]", r"aliases"),
    "key twice": (b"a: 1\na: 2\n", r"line 2 column 1: key 'a' occurs twice"),
    "infinity": (b"a: .inf\n", r"line 1 column 4: .inf is not a finite number"),
    "tag": (b'a: !!python/object/apply:os.system ["ls"]', r"tag .* is not read"),
    "nested": (b"[" * 100_000, r"nested deeper"),
    "nested tables": (b"{a: " * 50_000, r"nested deeper"),
    "list as key": (b"{[1]: 2}", r"plain name"),
    "syntax": (b"a: [1\nb: 2", r"line 2 column"),
    "control character": (b"a: \x01", r"not valid YAML"),
    "two documents": (b"a: 1\n---\na: 2\n", r"expected one document, found 2"),
    "none": (b"# nothing\n", r"expected one document, found 0"),
}


@pytest.mark.parametrize("case", BAD_YAML)
def test_bad_yaml_names_file_and_place(tmp_path, case):
    data, message = BAD_YAML[case]
    with pytest.raises(InputError, match=message) as caught:
        load_document(write(tmp_path, "bad.yaml", data))
    assert "bad.yaml" in str(caught.value)


def test_yaml_follows_the_core_schema_of_1_2(tmp_path):
    text = b"a: no\nb: 1e3\nc: 0o7\nd: 2001-01-01\ne: ~\nf: true\ng: '1'\nh: -.5\ni: 1:30\n"
    assert load_document(write(tmp_path, "a.yaml", text)) == {
        "a": "no",
        "b": 1000.0,
        "c": "0o7",
        "d": "2001-01-01",
        "e": None,
        "f": True,
        "g": "1",
        "h": -0.5,
        "i": "1:30",
    }


def test_without_a_known_suffix_the_first_character_tells_json(tmp_path):
    assert load_documents(write(tmp_path, "x", b' {"a": 1}')) == [{"a": 1}]
    assert load_documents(write(tmp_path, "y", b"a: 1\n---\na: 2\n")) == [{"a": 1}, {"a": 2}]


@pytest.mark.slow
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
def test_a_document_over_the_limit_is_refused_at_once(tmp_path, pack):
    path = write(tmp_path, "huge.json", pack(b" " * 100_000_000))
    began = time.monotonic()
    with pytest.raises(InputError, match=r"huge.json: larger than 64 MB, .*\.jsonl"):
        load_document(path)
    assert time.monotonic() - began < 5


def test_a_large_yaml_is_refused_before_it_is_parsed(tmp_path):
    path = write(tmp_path, "huge.yaml", b"a: b\n" * 3_000_000)
    with pytest.raises(InputError, match="larger than 8 MB"):
        load_document(path)


def test_a_line_over_the_limit_is_refused(tmp_path):
    path = write(tmp_path, "a.txt", b"short\n" + b"x" * 100)
    with pytest.raises(InputError, match=r"a.txt line 2: longer"):
        list(read_lines(path, limit=50))


@pytest.mark.slow
def test_a_large_zstd_file_is_read_as_a_stream_in_bounded_memory(tmp_path):
    path = write(tmp_path, "a.zst", zstd(b"\0" * 999 + b"\n") + zstd(b"\0" * 400_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"a.zst line 2: longer"):
            list(read_lines(path, limit=2**20))
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_what_stands_before_a_zstd_frame_breaks_off_is_read(tmp_path):
    text = "\n".join(f"line {i * 7919 % 1000003}" for i in range(200_000)).encode()
    read: list[tuple[int, str]] = []
    path = write(tmp_path, "a.zst", zstd(text)[:-4])
    with pytest.raises(InputError, match=r"a.zst: the compressed data is damaged: it ends too e"):
        read.extend(read_lines(path))
    assert len(read) > 100_000
    assert [line for _, line in read] == text.decode().split("\n")[: len(read)]


def test_files_that_cannot_be_opened_say_why(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_document(tmp_path / "missing.json")
    with pytest.raises(InputError, match="is a folder"):
        load_document(tmp_path)


def test_json_values_one_after_the_other_are_all_read():
    assert parse_json_values(' {"a": 1}\n[2]\n\n3 ', "x") == [{"a": 1}, [2], 3]
    with pytest.raises(InputError, match="x line 2 column 1"):
        parse_json_values("1\n}", "x")


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path):
    path = write(tmp_path, "a.json", b"\xef\xbb\xbf[1]")
    assert load_document(path) == [1]
    assert list(read_lines(path)) == [(1, "[1]")]
