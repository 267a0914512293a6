"""The journal keeps what it said is durable, whatever happens to its last line."""

import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rm.process.store import Journal
from rm.recovery import compact
from testkit.live import Cluster, chain, series, until, wait_for_nodes
from weft.client.api import Client
from weft.model.errors import InputError, WeftError
from weft.runtime.interfaces import StoreUnavailableError
from weft.runtime.kept_clock import KeptClock, clock_in


def test_records_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([{"n": 1}, {"n": 2, "text": "zwei\n"}])
    journal.append([{"n": 3}])
    journal.close()
    again = Journal(tmp_path)
    assert again.read() == [{"n": 1}, {"n": 2, "text": "zwei\n"}, {"n": 3}]
    again.append([{"n": 4}])
    again.close()
    last = Journal(tmp_path)
    assert [r["n"] for r in last.read()] == [1, 2, 3, 4]
    last.close()


@pytest.mark.parametrize("cut", range(1, 38))
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path)
    journal.append([{"n": 1}, {"n": 2}])
    mark = (tmp_path / "durable").read_bytes()
    journal.append([{"text": "a longer record"}])
    journal.close()
    (tmp_path / "durable").write_bytes(mark)  # it is written once the last batch is durable
    path = tmp_path / "journal.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    again = Journal(tmp_path)
    assert again.read() == [{"n": 1}, {"n": 2}]
    again.append([{"n": 3}])
    again.close()
    last = Journal(tmp_path)
    assert last.read() == [{"n": 1}, {"n": 2}, {"n": 3}]
    last.close()


def test_damage_in_the_middle_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"n": 1}\n{"n"\n{"n": 3}\n')
    journal = Journal(tmp_path)
    with pytest.raises(WeftError, match="line 2"):
        journal.read()
    journal.close()


def test_it_is_compacted_when_read_and_when_it_grew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.process.store.COMPACT_AFTER_BYTES", 1000)
    journal = Journal(tmp_path, lambda records: list(records)[-1:])
    for n in range(500):
        journal.append([{"n": n}])
    assert (tmp_path / "journal.jsonl").stat().st_size < 2000
    assert journal.read() == [{"n": 499}]
    journal.close()


def test_damage_that_is_found_while_it_runs_ends_no_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it decided is known to it; who starts next is told of the damage."""
    monkeypatch.setattr("rm.process.store.COMPACT_AFTER_BYTES", 1000)
    journal = Journal(tmp_path)
    journal.append([{"n": 0}])
    path = tmp_path / "journal.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"n":0', b'"n":7'))
    for n in range(1, 200):
        journal.append([{"n": n}])
    journal.close()
    again = Journal(tmp_path)
    with pytest.raises(WeftError, match="line 2 is no record"):
        again.read()
    again.close()


def test_two_managers_cannot_share_a_folder(tmp_path: Path) -> None:
    code = "import pathlib, sys, rm.process.store as s; s.Journal(pathlib.Path(sys.argv[1]))"
    journal = Journal(tmp_path)
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "in use by another Resource Manager" in other.stderr
    journal.close()


def test_the_start_of_the_cluster_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.cluster_ts(123) == 123
    journal.close()
    again = Journal(tmp_path)
    assert again.cluster_ts(456) == 123
    again.append([{"n": 1}])
    for bad in ("", "12x", "-5", "1e12", "9" * 20):
        (tmp_path / "cluster_ts").write_text(bad)
        with pytest.raises(WeftError, match=r"cluster_ts holds .* no time in ms.*write it back"):
            again.cluster_ts(456)
        assert (tmp_path / "cluster_ts").read_text() == bad, "what may be mended is left"
    again.close()


def test_the_clock_of_a_state_stays_and_another_one_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.keep_clock(KeptClock(1_700_000_000.25, 20.0))
    journal.keep_clock(KeptClock(1_700_000_000.25, 20.0))
    for other, named in (
        (KeptClock(0.0, 20.0), "epoch-s"),
        (KeptClock(1.7e9 + 0.25, 1.0), "scale"),
    ):
        with pytest.raises(InputError, match=rf"--.*{named}.* was begun with .*times .* move"):
            journal.keep_clock(other)
    assert clock_in(tmp_path) == KeptClock(1_700_000_000.25, 20.0)
    for bad in ("", "12", '{"epoch_s": 1}', '{"epoch_s": 1, "time_scale": 0}', '{"epoch_s": NaN}'):
        (tmp_path / "clock").write_text(bad)
        with pytest.raises(WeftError, match=r"clock holds .* no clock.*[Ww]rite it back"):
            journal.keep_clock(KeptClock(0.0, 1.0))
    journal.close()


def written(folder: Path, count: int = 30) -> bytes:
    """A journal as a manager leaves it: compacted once, then added to."""
    journal = Journal(folder)
    journal.append([{"kind": "start"}])
    journal.read()
    for n in range(count):
        journal.append([{"kind": "next", "app": n, "text": "x" * (n % 7)}])
    journal.close()
    return (folder / "journal.jsonl").read_bytes()


def read_of(folder: Path, data: bytes) -> list[object]:
    (folder / "journal.jsonl").write_bytes(data)
    journal = Journal(folder)
    try:
        return list(journal.read())
    finally:
        journal.close()


def test_every_single_damaged_byte_is_told_and_every_torn_tail_is_read(tmp_path: Path) -> None:
    whole = written(tmp_path)
    records = read_of(tmp_path, whole)
    rng = random.Random(7)
    for _ in range(2_000):
        at, other = rng.randrange(len(whole)), rng.randrange(1, 256)
        damaged = bytearray(whole)
        damaged[at] ^= other
        with pytest.raises(WeftError, match=r"journal\.jsonl: (line \d+|written in)"):
            read_of(tmp_path, bytes(damaged))
    last = whole[:-1].rfind(b"\n") + 1
    for end in range(last, len(whole)):
        assert read_of(tmp_path, whole[:end]) == records[:-1]
        assert read_of(tmp_path, whole[:end] + b"\0" * 64) == records[:-1]
    lines = whole.splitlines(keepends=True)
    for gone in (0, 1, 5, len(lines) - 2):
        with pytest.raises(WeftError, match="line"):
            read_of(tmp_path, b"".join(lines[:gone] + lines[gone + 1 :]))


def test_the_operator_is_told_how_to_go_on_without_the_damaged_rest(tmp_path: Path) -> None:
    lines = written(tmp_path).splitlines(keepends=True)
    bad = b"".join([*lines[:10], lines[10].replace(b"next", b"nxet"), *lines[11:]])
    told = r"line 11 .* checksum.*head -n 10 .*remove .*durable as well"
    with pytest.raises(WeftError, match=told) as caught:
        read_of(tmp_path, bad)
    assert "\n" not in str(caught.value)
    (tmp_path / "durable").unlink()
    assert len(read_of(tmp_path, b"".join(lines[:10]))) == 9


def test_what_was_durable_and_reads_as_zeros_or_is_missing_is_told(tmp_path: Path) -> None:
    """The mark beside the journal tells damage at the end from what a crash leaves there."""
    whole = written(tmp_path)
    mark = (tmp_path / "durable").read_bytes()
    lines = whole.splitlines(keepends=True)
    half, boundary = len(whole) // 2, len(b"".join(lines[:20]))
    for name, damaged in {
        "the second half is zeros": whole[:half] + bytes(len(whole) - half),
        "it is all zeros": bytes(len(whole)),
        "it is empty": b"",
        "the end is missing": whole[:half],
        "the last record is missing": b"".join(lines[:-1]),
        "the last byte is missing": whole[:-1],
        "zeros after a whole record": whole[:boundary] + bytes(len(whole) - boundary),
    }.items():
        (tmp_path / "durable").write_bytes(mark)
        with pytest.raises(WeftError, match=r"the file was damaged.*remove .*durable"):
            read_of(tmp_path, damaged)
        (tmp_path / "durable").unlink()  # as the operator is told
        kept = read_of(tmp_path, damaged)
        assert kept == read_of(tmp_path, whole)[: len(kept)], name
    (tmp_path / "durable").write_bytes(mark.replace(b"0", b"1", 1))
    with pytest.raises(WeftError, match="durable is damaged"):
        read_of(tmp_path, whole)


@pytest.mark.parametrize("seed", range(60))
def test_a_batch_that_a_crash_tore_anywhere_is_dropped_and_nothing_before_it(
    tmp_path: Path, seed: int
) -> None:
    """A disk writes sectors in any order: any of them may read as zeros, also the first."""
    rng = random.Random(seed)
    journal = Journal(tmp_path)
    batches = [
        [{"batch": b, "n": n, "text": "x" * rng.randrange(900)} for n in range(rng.randrange(1, 9))]
        for b in range(4)
    ]
    for batch in batches[:-1]:
        journal.append(batch)
    durable = (tmp_path / "journal.jsonl").read_bytes()
    mark = (tmp_path / "durable").read_bytes()
    journal.append(batches[-1])
    journal.close()
    torn = bytearray((tmp_path / "journal.jsonl").read_bytes())
    start, end = len(durable), len(torn)
    for first in range(start - start % 512, end, 512):
        if rng.random() < 0.5:
            low, high = max(start, first), min(end, first + 512)
            torn[low:high] = bytes(high - low)
    if rng.random() < 0.3:
        del torn[rng.randrange(start, end) :]
    (tmp_path / "durable").write_bytes(mark)
    before = [record for batch in batches[:-1] for record in batch]
    kept = read_of(tmp_path, bytes(torn))
    assert kept[: len(before)] == before
    assert kept[len(before) :] == batches[-1][: len(kept) - len(before)]
    hole = start // 2  # the same kind of loss where it was durable
    (tmp_path / "durable").unlink()
    with pytest.raises(WeftError, match="line"):
        read_of(tmp_path, durable[:hole] + bytes(1) + durable[hole + 1 :] + bytes(torn[start:]))


def test_a_journal_of_version_2_is_migrated(tmp_path: Path) -> None:
    records = [{"kind": "start"}, {"kind": "next", "app": 4}]
    texts = [f"{n} {json.dumps(r)}".encode() for n, r in enumerate([{"weft_journal": 2}, *records])]
    lines = [b"%08x %b\n" % (zlib.crc32(text), text) for text in texts]
    assert read_of(tmp_path, b"".join(lines)) == records
    assert b'{"weft_journal":3,"name":"' in (tmp_path / "journal.jsonl").read_bytes()
    with pytest.raises(WeftError, match=r"line 2 .* record 1 is missing"):
        read_of(tmp_path, lines[0] + lines[2])


def test_a_journal_of_version_1_is_migrated(tmp_path: Path) -> None:
    old = [{"kind": "start"}, {"kind": "next", "app": 4}]
    text = "".join(json.dumps(record) + "\n" for record in old) + '{"kind": "ne'
    assert read_of(tmp_path, text.encode()) == old
    assert (tmp_path / "journal.jsonl").read_text().split(" ", 1)[1].startswith("0 {")
    assert read_of(tmp_path, (tmp_path / "journal.jsonl").read_bytes()) == old
    for bad in (b"[1, 2]\n{}\n", b'{"n": 1}\n[1, 2]\n{"n": 2}\n'):
        with pytest.raises(WeftError, match="line"):
            read_of(tmp_path, bad)


def test_a_journal_of_a_later_version_or_with_unknown_records_is_refused(tmp_path: Path) -> None:
    text = b'0 {"weft_journal":4}'
    with pytest.raises(WeftError, match="version 4"):
        read_of(tmp_path, b"%08x %b\n" % (zlib.crc32(text), text))
    (tmp_path / "journal.jsonl").unlink()
    for record in ({"kind": "novelty", "app": 1}, {}, {"kind": "app"}):
        journal = Journal(tmp_path, compact)
        journal.append([record])
        with pytest.raises(WeftError, match="not of this version"):
            journal.read()
        journal.close()
        (tmp_path / "journal.jsonl").unlink()
        (tmp_path / "durable").unlink()


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    (folder / "journal.jsonl").touch(mode=0o644)
    journal = Journal(folder)
    journal.cluster_ts(1)
    journal.append([{"kind": "start"}])
    journal.read()
    journal.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("journal.jsonl", "cluster_ts", "durable", "lock"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name


class Faults:
    """What the operating system is made to fail with, while set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = 0  # error number of the sync of a folder
        self.cut = 0  # of a truncation
        self.half = 0  # of a write, of which a few bytes arrive
        self._fsync, self._cut, self._write = os.fsync, os.ftruncate, os.write
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "ftruncate", self.ftruncate)
        monkeypatch.setattr(os, "write", self.write)

    def fsync(self, file: int) -> None:
        if self.folder and stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(self.folder, os.strerror(self.folder))
        self._fsync(file)

    def ftruncate(self, file: int, size: int) -> None:
        if self.cut:
            raise OSError(self.cut, os.strerror(self.cut))
        self._cut(file, size)

    def write(self, file: int, data: memoryview) -> int:
        if not self.half:
            return self._write(file, data)
        if len(data) > 5:
            self._write(file, data[:5])
        raise OSError(self.half, os.strerror(self.half))


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def added(journal: Journal, count: int, accepted: list[int]) -> int:
    """Add so many records, numbered on from those that were accepted; returns how many were not."""
    refused = 0
    for _ in range(count):
        try:
            journal.append([{"n": len(accepted), "text": "x" * 100}])
            accepted.append(len(accepted))
        except StoreUnavailableError:
            refused += 1
    return refused


def kept_in(folder: Path) -> list[int]:
    journal = Journal(folder)
    try:
        return [record["n"] for record in journal.read()]
    finally:
        journal.close()


def test_a_folder_that_cannot_be_synced_after_compaction_loses_nothing_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    monkeypatch.setattr("rm.process.store.COMPACT_AFTER_BYTES", 1_000)
    journal, accepted = Journal(tmp_path), list[int]()
    journal.read()
    faults.folder = errno.EIO
    refused = added(journal, 60, accepted)
    assert accepted, "what was written before the compaction is durable in both files"
    assert refused == 60 - len(accepted) > 0, "and nothing is accepted after it"
    assert journal.read()[-1]["n"] == accepted[-1]
    assert added(journal, 1, accepted) == 1
    faults.folder = 0
    assert added(journal, 60, accepted) == 0
    journal.close()
    assert kept_in(tmp_path) == accepted
    faults.folder = errno.EIO  # also from the start on
    again = Journal(tmp_path)
    assert [record["n"] for record in again.read()] == accepted
    assert added(again, 3, accepted) == 3
    faults.folder = 0
    assert added(again, 3, accepted) == 0
    again.close()
    assert kept_in(tmp_path) == accepted


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_without_sync_of_folders_is_said_once_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults, number: int
) -> None:
    monkeypatch.setattr("rm.process.store.COMPACT_AFTER_BYTES", 1_000)
    faults.folder = number
    with capture_logs() as said:
        journal, accepted = Journal(tmp_path), list[int]()
        journal.read()
        assert added(journal, 60, accepted) == 0
        journal.close()
    assert [s["folder"] for s in said if "cannot sync folders" in s["event"]] == [str(tmp_path)]
    assert kept_in(tmp_path) == accepted


def test_nothing_is_written_behind_half_a_record_that_could_not_be_cut(
    tmp_path: Path, faults: Faults
) -> None:
    journal, accepted = Journal(tmp_path), list[int]()
    assert added(journal, 2, accepted) == 0
    faults.half = faults.cut = errno.EIO
    assert added(journal, 1, accepted) == 1
    faults.half = 0
    assert added(journal, 3, accepted) == 3, "half a record is in the way"
    faults.cut = 0
    assert added(journal, 3, accepted) == 0
    faults.half = faults.cut = errno.EIO
    assert added(journal, 1, accepted) == 1
    journal.close()  # the half stays
    faults.half = 0
    again = Journal(tmp_path)
    in_the_way = tmp_path / "journal.new"
    in_the_way.mkdir()  # nor can a second file be written
    assert [record["n"] for record in again.read()] == accepted
    assert again.dropped == "a torn last write (5 bytes)"
    assert added(again, 2, accepted) == 2
    faults.cut = 0
    assert added(again, 2, accepted) == 0
    again.close()
    in_the_way.rmdir()
    assert kept_in(tmp_path) == accepted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "weft-test", str(place)]
    if (
        os.geteuid() != 0
        or shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_takes_nothing_whole_and_is_as_it_was(small_disk: Path) -> None:
    journal = Journal(small_disk, compact)
    journal.read()
    kept = 0
    batch = [{"kind": "next", "app": 1, "text": "x" * 900}] * 3
    full = False
    while not full:
        try:
            journal.append(batch)
            kept += 3
        except StoreUnavailableError as error:
            full = "No space left" in str(error)
    with pytest.raises(StoreUnavailableError):
        journal.append([{"kind": "next", "app": 1, "text": "x" * 5_000}])
    journal.close()
    again = Journal(small_disk)
    assert len(again.read()) == kept + 1
    again.close()


def test_a_manager_on_a_full_disk_refuses_reads_on_and_goes_on(
    small_disk: Path, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 225_000)
    manager = cluster.manager(f"--state-dir={small_disk / 'state'}")
    host = cluster.host(manager)
    cluster.nodes(
        manager, "--cluster=2x4vcores,8192memory_mb", "--nodes=2", f"--am-host={host.address}"
    )
    try:
        with Client(manager.address, 120.0) as client:
            wait_for_nodes(client, 2)
            accepted: list[int] = []
            refused = ""
            while not refused and len(accepted) < 2_000:
                try:
                    accepted.append(client.submit(chain("j" * 500, 1, 1, 0.0)))
                except WeftError as error:
                    refused = str(error)
            assert "No space left" in refused, refused
            with pytest.raises(WeftError, match="nothing new is accepted"):
                client.submit(chain("j", 1, 1, 0.0))
            assert accepted
            assert client.metrics().nodes["RUNNING"] == 2, "reads go on"
            assert {a.app_id for a in client.applications()} >= set(accepted)
            assert "\nweft_store_stalled 1.0\n" in series(manager.ready["metrics"])
            manager.kill()
            again = cluster.manager(
                f"--state-dir={small_disk / 'state'}", f"--port={manager.address.split(':')[1]}"
            )
            assert "Traceback" not in manager.log.read_text()
            assert {a.app_id for a in client.applications()} >= set(accepted), "none was lost"
            ballast.unlink()
            until(
                lambda: "\nweft_store_stalled 1.0\n" not in series(again.ready["metrics"]), "room"
            )
            last = client.submit(chain("last", 1, 1, 0.0))
            ended = client.wait([*accepted, last])
            assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
            assert "Traceback" not in again.log.read_text()
    finally:
        cluster.close()
