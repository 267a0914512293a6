"""Files as plain data, read strictly: each fault is one InputError that names file and place.

JSON here refuses what other readers pass over in silence: keys that occur twice, NaN, text that
is not UTF-8, and documents that are too large to hold; `yaml_text` does so for YAML. Gzip and
zstd are told by their first bytes, whatever the file is called.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Any, BinaryIO

from weft.model.errors import InputError
from weft.workloads.unpacking import as_file, is_zstd, zstd_blocks
from weft.workloads.yaml_text import parse_yaml

# The limits are those of unpacked bytes. YAML takes some 20 times as long to read as JSON.
DOCUMENT_BYTES_MAX = 64 * 2**20
YAML_BYTES_MAX = 8 * 2**20
LINE_BYTES_MAX = 64 * 2**20
_GZIP_MAGIC = b"\x1f\x8b"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def plain_name(path: Path) -> str:
    """Return the file's name without the suffix of its compression (`.gz`, `.zst`, `.zstd`)."""
    return re.sub(r"\.(gz|zst|zstd)$", "", path.name)


def stem(path: Path) -> str:
    """Return the file's name without the suffixes of compression and format."""
    return re.sub(r"\.(jsonl|json|yaml|yml|txt|csv|jhist)$", "", plain_name(path)) or path.name


class Meter:
    """Bytes read from the files of a workload so far, as they lie on disk."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


# It counts where a meter is set.
METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


class _Counted(FileIO):
    """A file that tells a meter what was read of it."""

    def __init__(self, path: Path, meter: Meter) -> None:
        super().__init__(path, "rb")
        self._meter = meter

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer)
        self._meter.bytes += count or 0
        return count


def open_counted(path: Path) -> BinaryIO:
    """Open a file of a workload; what is read counts for the meter that is set."""
    meter = METER.get()
    return path.open("rb") if meter is None else BufferedReader(_Counted(path, meter), 2**15)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacked; raises InputError for whatever goes wrong on the way."""
    try:
        with open_counted(path) as raw:
            magic = raw.read(4)
            raw.seek(0) if raw.seekable() else None
            if magic[:2] == _GZIP_MAGIC:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked  # type: ignore[misc]
            elif is_zstd(magic):
                with as_file(zstd_blocks(raw), str(path)) as unpacked_zstd:
                    yield unpacked_zstd
            else:
                yield raw
    except FileNotFoundError:
        raise InputError(str(path), "no such file") from None
    except IsADirectoryError:
        raise InputError(str(path), "is a folder, not a file") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(str(path), f"the compressed data is damaged: {_line(error)}") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {_line(error)}") from None


def read_bytes(path: Path, limit: int = DOCUMENT_BYTES_MAX) -> bytes:
    """Return the file unpacked; raises InputError when it is larger than `limit` bytes."""
    with open_bytes(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise InputError(
            str(path),
            f"larger than {limit // 2**20} MB, the limit for one document; "
            "write one job a line (.jsonl): such files are read line by line",
        )
    return data


def read_text(path: Path, limit: int = DOCUMENT_BYTES_MAX) -> str:
    """Return the file unpacked, as text; raises InputError where it is not UTF-8."""
    return decode(read_bytes(path, limit), str(path))


def read_head(path: Path, size: int = 65536) -> str:
    """Return the first bytes of the file unpacked, as text, for telling formats apart."""
    with open_bytes(path) as stream:
        return stream.read(size).decode("utf-8", errors="replace").removeprefix("\ufeff")


def read_lines(path: Path, limit: int = LINE_BYTES_MAX) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 with their text, one line in memory at a time."""
    with open_bytes(path) as stream:
        yield from lines_of(stream, str(path), limit)


def lines_of(
    stream: IO[bytes], name: str, limit: int = LINE_BYTES_MAX
) -> Iterator[tuple[int, str]]:
    """Yield what `read_lines` does, from an open file."""
    number = 0
    while raw := stream.readline(limit + 1):
        number += 1
        if len(raw) > limit:
            raise InputError(f"{name} line {number}", f"longer than {limit // 2**20} MB")
        text = decode(raw, f"{name} line {number}").rstrip("\r\n")
        yield number, text.removeprefix("\ufeff") if number == 1 else text


def decode(data: bytes, place: str) -> str:
    """Return bytes as text; raises InputError naming the line of the first that is not UTF-8."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = place if " line " in place else f"{place} line {line}"
        raise InputError(where, f"byte 0x{data[error.start]:02x} is not UTF-8 text") from None


def load_document(path: Path | str) -> Any:
    """Return one JSON or YAML document as plain data; raises InputError with file and place.

    The suffix decides (`.json`, `.yaml`, `.yml`); with any other, a text that begins like JSON is.
    """
    documents = load_documents(Path(path))
    if len(documents) != 1:
        raise InputError(str(path), f"expected one document, found {len(documents)}")
    return documents[0]


def load_documents(path: Path) -> list[Any]:
    """Return the documents of a JSON file (one) or a YAML file (any number, split by `---`)."""
    name = plain_name(path).lower()
    if name.endswith((".yaml", ".yml")):
        return parse_yaml(read_text(path, YAML_BYTES_MAX), str(path))
    text = read_text(path)
    if name.endswith(".json") or text.lstrip()[:1] in ("{", "["):
        return [parse_json(text, str(path))]
    if len(text) > YAML_BYTES_MAX:
        raise InputError(str(path), f"over {YAML_BYTES_MAX // 2**20} MB: too large for YAML")
    return parse_yaml(text, str(path))


class _Fault:
    """Stands in parsed JSON for a value that is refused, until its place is known."""

    __slots__ = ("problem",)

    def __init__(self, problem: str) -> None:
        self.problem = problem


def parse_json(text: str, place: str) -> Any:
    """Return one JSON value; raises InputError with line and column, or a refused value's path."""
    with _json_errors(text, place):
        decoder, faults = _decoder()
        return _checked(decoder.decode(text), faults, text, place)
    raise AssertionError("unreachable")


def parse_json_values(text: str, place: str) -> list[Any]:
    """Return JSON values one after the other, as Hadoop's tools write them."""
    values: list[Any] = []
    position = _skip_space(text, 0)
    with _json_errors(text, place):
        decoder, faults = _decoder()
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            values.append(_checked(value, faults, text, place))
            position = _skip_space(text, position)
    return values


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _decoder() -> tuple[json.JSONDecoder, list[_Fault]]:
    faults: list[_Fault] = []

    def constant(name: str) -> Any:
        faults.append(_Fault(f"{name} is not a number of JSON"))
        return faults[-1]

    def table(pairs: list[tuple[str, Any]]) -> Any:
        data = dict(pairs)
        if len(data) == len(pairs):
            return data
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        faults.append(_Fault(f"key {twice!r} occurs twice"))
        return faults[-1]

    return json.JSONDecoder(object_pairs_hook=table, parse_constant=constant), faults


def _checked(value: Any, faults: list[_Fault], text: str, place: str) -> Any:
    if faults:
        first = faults[0]
        path = _find(value, lambda item: item is first)
        raise InputError(f"{place}: {path}" if path else place, first.problem)
    if _SURROGATE.search(text):
        path = _find(value, lambda item: isinstance(item, str) and not _is_text(item))
        if path is not None:
            raise InputError(f"{place}: {path}" if path else place, "half a surrogate pair")
    return value


def _is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _find(value: Any, wanted: Callable[[Any], bool]) -> str | None:
    """Return the path (`stages[2].demand`) of the first item wanted, keys included."""
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        path, item = todo.pop()
        if wanted(item):
            return path
        if isinstance(item, dict):
            for key, child in item.items():
                if wanted(key):
                    return path
                todo.append((f"{path}.{key}" if path else key, child))
        elif isinstance(item, list):
            todo.extend((f"{path}[{i}]", child) for i, child in enumerate(item))
    return None


@contextmanager
def _json_errors(text: str, place: str) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        where = f"{place} line {error.lineno} column {error.colno}"
        if " line " in place:
            where = f"{place} column {error.colno}"
        short = "the text ends too early" if error.pos >= len(text.rstrip()) else error.msg
        raise InputError(where, f"not valid JSON: {short}") from None
    except RecursionError:
        raise InputError(place, "not readable: nested too deeply") from None
    except ValueError as error:
        # Python converts no integer of so many digits.
        raise InputError(place, f"not readable: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
