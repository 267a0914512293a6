"""A tape on disk ends where it must, and the process that keeps it goes on."""

import contextlib
import errno
import json
import lzma
import os
import pickle
import stat
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from lab.commands.replay import replay
from nm.making import NodeParts
from nm.settings import NodeSettings
from sim.replay.verify import Replay, make_core
from weft.model.errors import InputError, WeftError
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.protocol.effects import ClientRequested, TimerFired
from weft.protocol.messages import NodeHeartbeated
from weft.protocol.requests import GetMetrics
from weft.runtime.frames import HEAD, HEAD_SIZE, PACKED, TAIL, Chain
from weft.runtime.tape import (
    BLOCK_ROWS_MAX,
    BLOCK_S_MAX,
    FILTERS,
    GATHERED_EVENTS_MAX,
    TAIL_BYTES_MAX,
    Tape,
)
from weft.runtime.tapefile import find_tapes, open_tape
from weft.tape.rows import Ended, Handled
from weft.tape.streams import put_uint


def begun(folder: Path, bytes_max: int, said: list[str]) -> Tape:
    tape = Tape(folder, "nm-rack/1", {"role": "nm"}, bytes_max, said.append)
    tape.add("node:n1", DEFAULT_RESOURCE_TYPES)  # any dataclass
    return tape


def test_it_is_for_its_owner_only_and_named_after_its_process(tmp_path: Path) -> None:
    said: list[str] = []
    tape = begun(tmp_path / "tapes", 10**6, said)
    tape.handled("node:n1", TimerFired("tasks"), 1.5, [])
    tape.close()
    tape.handled("node:n1", TimerFired("tasks"), 2.5, [])  # nobody keeps it any more
    (found,) = find_tapes(tmp_path / "tapes")
    assert found.path.name.startswith("nm-rack_1-")
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o600
    assert list(found.rows())[1:] == [
        Handled("node:n1", TimerFired("tasks"), 1.5),
        Ended("the process ended"),
    ]
    assert not said


def test_it_ends_at_its_limit_with_one_word(tmp_path: Path) -> None:
    said: list[str] = []
    tape = begun(tmp_path, 3000, said)
    for number in range(3000):
        tape.handled("node:n1", NodeHeartbeated("n1", number**5), number * 0.37, [])
        if number % 50 == 0:
            tape.flush()
    tape.close()
    (found,) = find_tapes(tmp_path)
    rows = list(found.rows())
    assert rows[-1] == Ended("it has 0.003 MB")
    assert 100 < len(rows) < 2000
    assert found.path.stat().st_size < 5000
    assert said == [f"the tape {found.path} ends: it has 0.003 MB"]


def test_a_full_disk_ends_the_tape_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tape = begun(tmp_path, 10**6, said)
    tape.flush()

    def full(file: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("weft.runtime.tape.os.pwrite", full)
    for _ in range(3):
        tape.handled("node:n1", TimerFired("tasks"), 1.0, [])
        tape.flush()
    tape.close()
    assert said == [f"the tape {tape.path} ends: No space left on device"]
    monkeypatch.undo()
    assert len(list(open_tape(tape.path).rows())) == 1  # what was written before is whole


@pytest.mark.parametrize("late_s", [0.0, 2 * BLOCK_S_MAX])
def test_a_disk_that_gets_full_within_a_write_keeps_what_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """Neither a part of the tail nor one of its block, which takes the tail's place, harms it."""
    said: list[str] = []
    tape = begun(tmp_path, 10**6, said)
    tape.handled("node:n1", TimerFired("tasks"), 1.0, [])
    tape.flush()
    room, write = tape.path.stat().st_size + 100, os.pwrite

    def small(file: int, data: bytes, at: int) -> int:
        if at >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[: room - at], at)

    monkeypatch.setattr("weft.runtime.tape.os.pwrite", small)
    tape._block_began_s -= late_s
    for number in range(GATHERED_EVENTS_MAX - 1):
        tape.handled("node:n1", NodeHeartbeated("n1", number**9), number * 0.37, [])
    tape.flush()
    tape.close()
    assert said == [f"the tape {tape.path} ends: No space left on device"]
    assert list(open_tape(tape.path).rows())[1:] == [Handled("node:n1", TimerFired("tasks"), 1.0)]


@pytest.mark.slow
def test_a_process_killed_in_its_first_flush_leaves_a_tape(tmp_path: Path) -> None:
    """Else it would keep the tapes beside it from being replayed."""
    tape = begun(tmp_path, 10**6, [])
    tape.flush()
    data = tape.path.read_bytes()
    for end in range(data.index(b"\n") + 1, len(data)):
        tape.path.write_bytes(data[:end])
        assert list(open_tape(tape.path).rows()) == []


@pytest.mark.slow
def test_a_killed_process_leaves_all_that_was_flushed(tmp_path: Path) -> None:
    """The tail stands for the block that is open, also where its block was just being written."""
    tape = begun(tmp_path, 10**6, [])
    seen = []
    for number in range(3 * BLOCK_ROWS_MAX):
        tape.handled("node:n1", NodeHeartbeated("n1", number), number * 0.37, [])
        if number % 700 == 0:
            tape.flush()
            seen.append((number, tape.path.read_bytes()))
    for number, data in seen:
        for more in (b"", b"rest of a tail" * 9):
            tape.path.write_bytes(data + more)
            rows = [row for row in open_tape(tape.path).rows() if isinstance(row, Handled)]
            assert [row.event.request_id for row in rows] == list(range(number + 1))
    tape.path.write_bytes(seen[-1][1][:-1])
    assert len(list(open_tape(tape.path).rows())) > BLOCK_ROWS_MAX, (
        "blocks before the tail are whole"
    )
    data = seen[-1][1]
    line, frames = parted(data)
    hit = len(line) + len(frames[0]) + HEAD_SIZE + 9  # in the second of three frames
    tape.path.write_bytes(data[:hit] + bytes([data[hit] ^ 1]) + data[hit + 1 :])
    with pytest.raises(InputError, match=r"is damaged: frame 2 at byte [\d,]+: its bytes are not"):
        list(open_tape(tape.path).rows())


def test_a_process_that_was_killed_before_it_wrote_a_line_keeps_no_other_from_its_tape(
    tmp_path: Path,
) -> None:
    (tmp_path / "am-257-1-1.tape").touch()
    with pytest.raises(InputError, match="holds no tape"):
        find_tapes(tmp_path)
    tape = begun(tmp_path, 10**6, [])
    tape.close()
    assert [found.path for found in find_tapes(tmp_path)] == [tape.path]


def test_what_is_no_tape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WeftError, match="cannot write a tape"):
        begun(tmp_path / "file", 10**6, [])
    with pytest.raises(InputError, match="is no tape"):
        open_tape(tmp_path / "file")
    tape = begun(tmp_path, 10**6, [])
    tape.close()
    first, _, rest = tape.path.read_bytes().partition(b"\n")
    tape.path.write_bytes(first.replace(b"tape 7", b"tape 6") + b"\n" + rest)
    with pytest.raises(InputError, match="format 6; this version reads format 7: replay it with"):
        open_tape(tape.path)
    tape.path.write_bytes(first + b"\nxxxx" + rest[4:])
    with pytest.raises(InputError, match="is damaged: frame 1 at byte"):
        list(open_tape(tape.path).rows())
    older = first.replace(b'"schema": "', b'"schema": "0')
    tape.path.write_bytes(older + b"\n" + rest)
    with pytest.raises(InputError, match="replay it with that version"):
        list(open_tape(tape.path).rows())
    with pytest.raises(WeftError, match="unknown kind"):
        make_core({"kind": "Unheard"}, {})


def parted(data: bytes) -> tuple[bytes, list[bytes]]:
    """A tape's first line and its frames."""
    at = data.index(b"\n") + 1
    line, frames = data[:at], []
    while at < len(data):
        size = HEAD_SIZE + HEAD.unpack_from(data, at)[1]
        frames.append(data[at : at + size])
        at += size
    return line, frames


def framed(folder: Path, kind: int, data: bytes) -> Path:
    """A tape of one frame whose sum is right."""
    tape = begun(folder, 10**6, [])
    tape.close()
    line, _ = parted(tape.path.read_bytes())
    tape.path.write_bytes(line + Chain(line).frame(kind, data))
    return tape.path


@pytest.mark.slow
def test_bytes_that_no_process_wrote_are_told_in_one_line_and_take_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, problem: str) -> None:
        with pytest.raises(WeftError, match=problem) as told:
            Replay().run(open_tape(path).rows())
        assert "\n" not in str(told.value)

    def block(*columns: tuple[int, bytes]) -> bytes:
        """Columns by their place; each is at least 1 after the one before."""
        heads, last = bytearray(), -1
        for place, data in columns:
            put_uint(heads, place - last)
            put_uint(heads, len(data))
            last = place
        body = bytes(heads) + b"\0" + b"".join(data for _, data in columns)
        return struct.pack("<I", len(body)) + body

    def pack(data: bytes) -> bytes:
        return lzma.compress(data, lzma.FORMAT_RAW, filters=FILTERS)

    read(framed(tmp_path / "cut", PACKED, pack(bytes(100_000))[:-5]), "a block ends too early")
    endless = b"\xff" * (1 << 20) + b"\1"
    tail = zlib.compress(block((0, b"\xff"), (1, endless)))
    read(framed(tmp_path / "number", TAIL, tail), "number without end")
    with monkeypatch.context() as patched:  # many times what it took, and nothing was free
        patched.setattr("weft.tape.streams.UNPACKED_VALUES_MAX", 1 << 10)
        read(framed(tmp_path / "text", PACKED, pack(block((2, bytes(1 << 20))))), "run without end")
    made = b"\0\1a" + bytes([2]) + b"[]"
    tail = zlib.compress(block((0, b"\xff"), (1, b"\0"), (2, made)))
    read(framed(tmp_path / "core", TAIL, tail), "no core can be made")
    read(framed(tmp_path / "half", TAIL, tail[:-5]), "its end unpacks without end, or is none")
    read(framed(tmp_path / "none", TAIL, b"none"), "is damaged")
    monkeypatch.setattr("weft.runtime.tapefile.BLOCK_BYTES_MAX", 1 << 16)
    read(framed(tmp_path / "bomb", PACKED, pack(bytes(1 << 20))), "a block unpacks to more than")
    read(framed(tmp_path / "fuse", TAIL, zlib.compress(bytes(1 << 20))), "unpacks without end")
    (tmp_path / "line").mkdir()
    odd = tmp_path / "line" / "odd.tape"
    odd.write_bytes(b'{"tape": "weft tape 7", "began": "x"}\n')
    with pytest.raises(InputError, match="does not say when it began"):
        find_tapes(tmp_path / "line")


def test_events_are_gathered_and_the_tail_grows_by_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a core waits for is a list that gets longer; what a flush writes is not the block."""
    tape = begun(tmp_path, 10**6, [])
    rows: list[object] = []
    put = tape._rows.handled
    monkeypatch.setattr(tape._rows, "handled", lambda *row: (rows.append(row), put(*row)))
    for number in range(GATHERED_EVENTS_MAX - 1):
        tape.handled("node:n1", NodeHeartbeated("n1", number**7), number * 0.37, [])
    assert not rows
    assert tape.events == GATHERED_EVENTS_MAX - 1
    tape.flush()
    assert len(rows) == tape.events
    whole = tape.path.stat().st_size
    for number in range(3):
        tape.handled("node:n1", TimerFired("tasks"), 200.0 + number, [])
        tape.flush()
    assert tape.path.stat().st_size - whole < 3 * 60
    assert sum(isinstance(row, Handled) for row in open_tape(tape.path).rows()) == tape.events
    tape.handled("node:n1", ClientRequested("a", GetMetrics()), 300.0, [])
    assert tape.events == GATHERED_EVENTS_MAX + 2, "an answer to a read would be held for nothing"


@pytest.mark.slow
def test_parts_of_a_tail_behind_its_block_are_not_read_again(tmp_path: Path) -> None:
    """A process that is killed between a block and cutting off the tail leaves parts of that."""
    tape = begun(tmp_path, 10**6, [])
    for number in range(40):
        tape.handled("node:n1", NodeHeartbeated("n1", number), number * 0.37, [])
        tape.flush()
    _, frames = parted(tape.path.read_bytes())
    assert len(frames) == 40
    tape.close()
    line, (block, closing) = parted(tape.path.read_bytes())
    for stale in range(len(frames)):
        tape.path.write_bytes(line + block + b"".join(frames[stale:]))
        found = list(open_tape(tape.path).rows())
        rows = [row for row in found if isinstance(row, Handled)]
        assert [row.event.request_id for row in rows] == list(range(40))
        assert not isinstance(found[-1], Ended), "it was not closed"
        tape.path.write_bytes(line + block[:-9] + frames[stale])  # killed within the block
        assert list(open_tape(tape.path).rows()) == []
    tape.path.write_bytes(line + block + frames[3] + closing)
    with pytest.raises(InputError, match=r"is damaged: frame 2 at byte"):
        list(open_tape(tape.path).rows())


def taped(folder: Path, closed: bool) -> tuple[Path, bytes, list[bytes]]:
    """A tape of three blocks and, where it is not closed, a tail of four parts behind them."""
    tape = begun(folder, 10**6, [])
    for number in range(3):
        tape.handled("node:n1", NodeHeartbeated("n1", number), number * 0.37, [])
        tape._block_began_s -= 2 * BLOCK_S_MAX
        tape.flush()
    for number in range(0 if closed else 4):
        tape.handled("node:n1", TimerFired("tasks"), 2.0 + number, [])
        tape.flush()
    if closed:
        tape.close()
    return tape.path, *parted(tape.path.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_frames_that_are_dropped_doubled_swapped_or_of_another_tape_are_told(
    tmp_path: Path, closed: bool
) -> None:
    """Each with the frame where it shows; what was before it is read."""
    path, line, frames = taped(tmp_path / "one", closed)
    _, _, others = taped(tmp_path / "two", closed)
    count = 4 if closed else 7
    assert len(frames) == len(others) == count

    def told(changed: Sequence[bytes], at: int, why: str) -> None:
        path.write_bytes(line + b"".join(changed))
        rows = []
        byte = len(line) + sum(map(len, changed[:at]))
        with pytest.raises(InputError, match=why) as error:
            rows.extend(open_tape(path).rows())
        assert str(error.value).startswith(f"{path}: is damaged: frame {at + 1} at byte {byte:,}")

    for i in range(count):
        if i < count - 1:  # without its last frame it is a tape that was cut off
            told(frames[:i] + frames[i + 1 :], i, "what was before it is missing")
        again = frames[: i + 1] + frames[i:]
        told(again, i if closed and i == 3 else i + 1, "there twice|but 60 bytes|bytes follow")
        spliced = [*frames[:i], others[i], *frames[i + 1 :]]
        told(spliced, i, "it is of another tape")
        told(frames[:i] + others[i:], i, "it is of another tape")
        for j in range(i + 1, count):
            swapped = [*frames]
            swapped[i], swapped[j] = frames[j], frames[i]
            told(swapped, i, "is missing|bytes follow")
        for place in range(len(frames[i])):  # no byte may change
            hit = bytearray(frames[i])
            hit[place] ^= 0x40
            whole = [*frames[:i], bytes(hit), *frames[i + 1 :]]
            if i < count - 1 and (closed or place not in range(1, 5)):
                told(whole, i, "not those that were written|of another tape")
            else:  # the end is none; behind another length nothing is found any more
                path.write_bytes(line + b"".join(whole))
                with contextlib.suppress(InputError):
                    assert not any(isinstance(row, Ended) for row in open_tape(path).rows())


@pytest.mark.slow
def test_a_tape_that_was_cut_off_is_replayed_and_says_so(tmp_path: Path) -> None:
    """A clean end is known from one that is missing: the last frame says which it is."""
    parts = NodeParts("n1", "", {"vcores": 1.0}, "", (), NodeSettings(), (1,), 7)
    tape = Tape(tmp_path, "nm", {"role": "nm"}, 10**6, print)
    tape.add("node:n1", parts)
    for number in range(5):
        tape.handled("node:n1", TimerFired("nothing"), 1.0 + number, [])
        tape.flush()
    tape.close()
    line, (block, closing) = parted(tape.path.read_bytes())
    said = CliRunner().invoke(replay, [str(tape.path)])
    assert said.exit_code == 0
    assert "closing frame" not in said.output
    assert said.output.split()[-2:] == ["the", "same"]
    tape.path.write_bytes(line + block)
    said = CliRunner().invoke(replay, [str(tape.path)])
    assert said.exit_code == 0
    assert "ends without its closing frame" in said.output
    assert "the same so far" in said.output
    tape.path.write_bytes(line + closing)
    said = CliRunner().invoke(replay, [str(tape.path), "--json"])
    (row,) = json.loads(said.stdout)
    assert "what was before it is missing" in row["problem"]
    assert isinstance(said.exception, InputError)


def test_a_tape_that_grows_while_it_is_read_gives_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that writes it still runs: its size of before says nothing of its end."""
    parts = NodeParts("n1", "", {"vcores": 1.0}, "", (), NodeSettings(), (1,), 7)
    tape = Tape(tmp_path, "nm", {"role": "nm"}, 10**6, print)
    tape.add("node:n1", parts)
    for number in range(5):
        tape.handled("node:n1", TimerFired("nothing"), 1.0 + number, [])
        tape.flush()
    written = tape.path.read_bytes()
    line = written.index(b"\n") + 1
    sizes = []
    for size in (*range(line - 1, line + 300), len(written) // 2, len(written) - 1, len(written)):
        grown = SimpleNamespace(fstat=lambda _, size=size: SimpleNamespace(st_size=size))
        monkeypatch.setattr("weft.runtime.frames.os", grown)
        sizes.append(len(list(open_tape(tape.path).rows())))
    assert sizes[-1] > 0
    tape.close()


def test_a_block_of_large_rows_is_closed_early(tmp_path: Path) -> None:
    """So that no block that a process writes is larger than what a reader takes."""
    tape = begun(tmp_path, 10**6, [])
    tape._tail_bytes = TAIL_BYTES_MAX
    tape.handled("node:n1", TimerFired("tasks"), 1.0, [])
    tape.flush()
    _, (frame,) = parted(tape.path.read_bytes())
    assert frame[0] == PACKED
    assert tape._tail_bytes == 0


@pytest.mark.slow
def test_large_tapes_replay_beside_each_other_and_are_told_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = NodeParts("n1", "", {"vcores": 1.0}, "", (), NodeSettings(), (1,), 7)
    for name, events in (("a", 3), ("b", 40), ("c", 9)):
        tape = Tape(tmp_path, name, {"role": "nm"}, 10**6, print)
        tape.add("node:n1", parts)
        for number in range(events):
            tape.handled("node:n1", TimerFired("nothing"), 1.0 + number, [])
        tape.close()
    used = []

    def pool(jobs: int) -> ThreadPoolExecutor:
        used.append(jobs)
        return ThreadPoolExecutor(jobs)

    monkeypatch.setattr("lab.commands.replay.WorkerPool", pool)
    for large, pools in ((1 << 20, []), (0, [2])):
        monkeypatch.setattr("lab.commands.replay.OWN_PROCESS_BYTES_MIN", large)
        said = CliRunner().invoke(replay, [str(tmp_path), "--workers", "2", "--json"])
        assert said.exit_code == 0, said.output
        assert [row["events"] for row in json.loads(said.stdout)] == [3, 40, 9]
        assert used == pools
    (middle,) = tmp_path.glob("b-*.tape")
    data = middle.read_bytes()
    middle.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    said = CliRunner().invoke(replay, [str(tmp_path), "--workers", "2", "--json"])
    told = json.loads(said.stdout)
    assert [bool(row["problem"]) for row in told] == [False, True, False]
    assert [row["events"] for row in told] == [3, 0, 9], "the others are replayed"
    assert "1 of 3 tapes cannot be replayed" in str(said.exception)
    again = pickle.loads(pickle.dumps(InputError("a.tape", "is damaged")))
    assert (str(again), again.problem) == ("a.tape: is damaged", "is damaged")
