"""Every codec and every cutting of a Spark event log gives the same jobs, or says what is lost."""

import gzip
import json
from pathlib import Path
from typing import Any

import cramjam
import pytest

from weft.model.job import Job
from weft.workloads.registry import detect
from weft.workloads.spark_log import read

INFO = {"Stage ID": 0, "Number of Tasks": 8, "Parent IDs": [], "RDD Info": []}
START = {
    "Event": "SparkListenerApplicationStart",
    "App Name": "a",
    "App ID": "app-1",
    "Timestamp": 1,
}
JOB = {"Event": "SparkListenerJobStart", "Job ID": 0, "Submission Time": 1, "Stage Infos": [INFO]}


def task_end(index: int) -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": 0,
        "Task End Reason": {"Reason": "Success"},
        "Task Info": {"Index": index, "Launch Time": 1, "Finish Time": 10 + index},
        "Task Metrics": {"Executor Run Time": 9, "Executor CPU Time": 10**6 * index},
    }


EVENTS: list[dict[str, Any]] = [
    START,
    JOB,
    *(task_end(index) for index in range(8)),
    {"Event": "SparkListenerStageCompleted", "Stage Info": INFO},
    {"Event": "SparkListenerJobEnd", "Job ID": 0, "Job Result": {"Result": "JobSucceeded"}},
    {"Event": "SparkListenerApplicationEnd", "Timestamp": 99},
]


def lines_of(events: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_bytes(lines_of(events))
    return path


def only(path: Path) -> Job:
    (job,) = read([path]).jobs
    return job


def lz4_block_stream(data: bytes, size: int = 300) -> bytes:
    """As lz4-java's LZ4BlockOutputStream, the last data block stored as it is."""
    out = b""
    for at in range(0, len(data), size):
        block = data[at : at + size]
        stored = at + size >= len(data)
        packed = block if stored else bytes(cramjam.lz4.compress_block(block, store_size=False))
        sizes = len(packed).to_bytes(4, "little") + len(block).to_bytes(4, "little")
        out += b"LZ4Block" + (b"\x15" if stored else b"\x25") + sizes + bytes(4) + packed
    return out + b"LZ4Block\x15" + bytes(12)


def snappy_stream(data: bytes, size: int = 300) -> bytes:
    """As snappy-java's SnappyOutputStream."""
    out = b"\x82SNAPPY\x00" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
    for at in range(0, len(data), size):
        packed = bytes(cramjam.snappy.compress_raw(data[at : at + size]))
        out += len(packed).to_bytes(4, "big") + packed
    return out


PACKERS = {
    "gz": gzip.compress,
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
    "lz4": lz4_block_stream,
    "lz4-frame": lambda data: bytes(cramjam.lz4.compress(data)),
    "snappy": snappy_stream,
    "snappy-frame": lambda data: bytes(cramjam.snappy.compress(data)),
}


@pytest.mark.parametrize("codec", PACKERS)
def test_every_codec_gives_the_same_job(tmp_path: Path, codec: str) -> None:
    plain = only(write(tmp_path / "log", EVENTS))
    packed = tmp_path / f"log.{codec}"
    packed.write_bytes(PACKERS[codec](lines_of(EVENTS)))
    assert only(packed) == plain
    assert detect([packed]) == "spark"


@pytest.mark.parametrize("codec", ["gz", "lz4", "snappy"])
def test_what_stands_before_a_damaged_end_is_used(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACKERS[codec](lines_of(EVENTS))[:-30])
    result = read([path])
    assert result.jobs
    assert result.dropped["damaged end of a file"] == 1


def test_a_zstd_stream_that_was_broken_off_is_read_to_its_last_block(tmp_path: Path) -> None:
    packer = cramjam.zstd.Compressor()
    out, whole = b"", EVENTS
    for event in whole[:-2]:
        packer.compress(lines_of([event]))
        out += bytes(packer.flush())
    path = tmp_path / "log.zstd.inprogress"
    for cut in (0, 5):
        path.write_bytes(out[: len(out) - cut])
        result = read([path])
        assert result.dropped["damaged end of a file"] == 1
        assert result.jobs[0].task_count == 8


def test_the_parts_of_a_rolling_log_are_read_by_number(tmp_path: Path) -> None:
    events = EVENTS
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "appstatus_app-1.inprogress").touch()
    for number in range(1, 13):
        part = events[number - 1 : number] if number < 12 else events[11:]
        write(folder / f"events_{number}_app-1", part)
    whole = only(write(tmp_path / "log", events))
    assert only(folder) == whole
    assert read(sorted(folder.glob("events_*"))).jobs == [whole]


def test_a_missing_or_compacted_part_is_said(tmp_path: Path) -> None:
    events = EVENTS
    write(tmp_path / "events_1_app-1", events[:4])
    write(tmp_path / "events_3_app-1", events[4:])
    assert any("part 2 of the rolling" in w for w in read([tmp_path]).warnings)
    write(tmp_path / "events_2_app-1.compact", events[:4])
    result = read([tmp_path])
    assert any("compacted" in w for w in result.warnings)
    assert len(result.jobs) == 1
    assert not result.dropped["second start of a job"]


def test_a_folder_is_as_many_logs_as_it_has_applications(tmp_path: Path) -> None:
    write(tmp_path / "a", EVENTS)
    write(tmp_path / "b", EVENTS)
    (tmp_path / "c").write_bytes(b"no log")
    result = read([tmp_path])
    assert len(result.jobs) == 2
    assert result.dropped["unusable file"] == 1
