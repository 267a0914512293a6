"""Spark's event log, from one that a real run wrote: three stages, and a job that reuses two."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from weft.yarn.events import EventLog, Events
from weft.yarn.stages import Remaining, outline, read_stages, remaining

LINES = Path(__file__).with_name("spark_events.jsonl").read_text().splitlines()
APP = "application_1_0007"


def after(count: int) -> list[dict[str, Any]]:
    events = Events()
    for line in LINES[:count]:
        events.take(line)
    return events.stages()


def where(words: str, nth: int = 0) -> int:
    """How many lines there are up to the nth one with these words, inclusive."""
    return [at for at, line in enumerate(LINES, 1) if words in line][nth]


def test_edges_and_waiting_stages_are_known_when_the_job_starts() -> None:
    stages = read_stages(after(where("StageSubmitted")))
    assert [(s.number, s.tasks, s.parents, s.status) for s in stages] == [
        (0, 3, (), "ACTIVE"),
        (1, 2, (), "PENDING"),
        (2, 2, (0, 1), "PENDING"),
    ]
    assert remaining(stages) is None, "no task's time is known"


def test_what_is_left_goes_along_the_edges() -> None:
    """Stages 0 and 1 beside each other, 2 after both: not one after the other."""
    stages = read_stages(after(where("TaskEnd", 2)))
    of_0, of_1 = (6.519 + 0.098 + 6.499 + 0.117) / 2, 1.470 + 0.003
    usual = (2 * of_0 + of_1) / 3
    # stage 0 runs its last task, stage 1 too; the two tasks of stage 2 did not start
    assert remaining(stages) == pytest.approx(Remaining(2 * usual, of_0 + usual))


def test_stages_whose_output_is_there_are_left_out() -> None:
    stages = read_stages(after(where("StageSubmitted", 3)))
    assert [s.number for s in stages if s.status not in ("COMPLETE", "FAILED")] == [5]
    assert read_stages(after(len(LINES)))[-1].status == "COMPLETE"
    known = outline(read_stages(after(len(LINES))))
    assert [(k.tasks, k.parents) for k in known] == [(3, ()), (2, ()), (2, (0, 1)), (2, (2,))]


def write(folder: Path, kind: str) -> Iterator[None]:
    """Write the log as Spark does, bit by bit."""
    text = [line + "\n" for line in LINES]
    if kind == "plain":
        path = folder / f"{APP}_1.inprogress"
        for at in range(0, len(text), 5):
            with path.open("a") as file:
                file.write("".join(text[at : at + 5])[:-7])  # a line that is not whole yet
            yield
            with path.open("a") as file:
                file.write("".join(text[at : at + 5])[-7:])
        path.rename(folder / f"{APP}_1")
        yield
        return
    rolled = folder / f"eventlog_v2_{APP}_1"
    rolled.mkdir()
    (rolled / f"appstatus_{APP}_1.inprogress").touch()
    for number, at in enumerate(range(0, len(text), 8), 9):  # 10 comes after 9
        path = rolled / f"events_{number}_{APP}_1.zstd"
        for more in range(at, min(at + 8, len(text)), 4):  # Spark ends a frame with each flush
            with path.open("ab") as packed:
                packed.write(zstandard.compress("".join(text[more : more + 4]).encode()))
            yield


@pytest.mark.parametrize("kind", ["plain", "rolled"])
def test_a_log_is_read_as_it_grows(tmp_path: Path, kind: str) -> None:
    """Plain and renamed at its end, or packed in frames and in several files."""
    log = EventLog(tmp_path, APP)
    assert not log.read(), "there is none yet"
    (tmp_path / "application_1_0008").write_text("another's")
    counts = []
    for _ in write(tmp_path, kind):
        assert log.read()
        counts.append(len(log.events.stages()))
    assert log.events.stages() == after(len(LINES))
    assert counts == sorted(counts)
    assert log.events.cpus == {0: 1.0}


def test_another_attempt_of_the_application_is_read_from_its_start(tmp_path: Path) -> None:
    (tmp_path / f"{APP}_1").write_text("\n".join(LINES[:20]) + "\n")
    log = EventLog(tmp_path, APP)
    assert log.read()
    (tmp_path / f"{APP}_2.inprogress").write_text("\n".join(LINES[:4]) + "\n")
    os.utime(tmp_path / f"{APP}_1", (1, 1))
    assert log.read()
    assert log.events.stages() == after(4)


def test_damage_is_told_and_never_more() -> None:
    for line in (
        "[]",
        "no json",
        '{"Event": "SparkListenerJobStart"}',
        '{"Event": "SparkListenerTaskEnd", "Stage ID": "x"}',
        '{"Event": "SparkListenerStageSubmitted", "Stage Info": []}',
    ):
        with pytest.raises(ValueError, match=r"object|cannot be read|Expecting"):
            Events().take(line)
    for line in LINES:
        whole = json.loads(line)
        for key in whole:
            for odd in (None, -1, [], {}, "x", 1e400):
                events = Events()
                try:
                    events.take(json.dumps({**whole, key: odd}))
                    read_stages(events.stages())
                except ValueError:
                    continue


DEEP = "[" * 100_000


def test_a_line_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path) -> None:
    lines = list(LINES)
    for place, line in (
        (3, "no json"),
        (9, '{"Event": "SparkListenerStageSubmitted"}'),
        (11, DEEP),
    ):
        lines.insert(place, line)
    (tmp_path / f"{APP}_1").write_text("\n".join(lines) + "\n")
    log = EventLog(tmp_path, APP)
    assert log.read()
    assert log.events.stages() == after(len(LINES))
    assert (log.odd, log.why_odd[:9]) == (3, "Expecting")
    (tmp_path / f"{APP}_2").write_text(LINES[0] + "\n")
    os.utime(tmp_path / f"{APP}_1", (1, 1))
    assert log.read()
    assert log.odd == 0, "of another attempt"


def test_an_event_that_is_refused_changes_nothing() -> None:
    (line,) = [line for line in LINES if '"SparkListenerJobStart"' in line][:1]
    event = json.loads(line)
    event["Stage Infos"].append({"Stage ID": "none"})
    events = Events()
    with pytest.raises(ValueError, match="JobStart cannot be read"):
        events.take(json.dumps(event))
    assert events.stages() == []


def test_a_log_that_unpacks_without_end_takes_no_memory(tmp_path: Path) -> None:
    """Frames of 128 KiB of one byte take four bytes each: 2 GiB in a file of 64 kB."""
    block = (1 << 1 | 1 << 17 << 3).to_bytes(3, "little") + b"\0"
    frame = b"\x28\xb5\x2f\xfd\x00\x38" + block * 16_000
    (tmp_path / f"{APP}_1.zstd").write_bytes(frame)
    log, largest = EventLog(tmp_path, APP), 0
    usual = log._begin

    def begin(file: Path) -> None:
        usual(file)
        unpack = log._unpack.decompress

        class Seen:
            def decompress(self, data: bytes) -> bytes:
                nonlocal largest
                found: bytes = unpack(data)
                largest = max(largest, len(found))
                return found

        log._unpack = Seen()

    log._begin = begin  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="an event of more than"):
        log.read()
    assert 0 < largest <= 34 << 20


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{APP}_1")
    assert not EventLog(tmp_path, APP).read()
