"""The state of a manager is copied while it runs, and a manager goes on from the copy."""

import json
import threading
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.cli import weft
from rm.process.journal_copies import (
    APPLICATIONS_SKIPPED,
    LIVES_SKIPPED,
    backup,
    check,
    restore,
)
from rm.process.store import Journal
from rm.recovery import compact
from testkit.builders import ask, job, stage
from testkit.manager import Rig
from weft.model.errors import WeftError
from weft.model.ids import granted_before
from weft.runtime.kept_clock import KeptClock, clock_in


def kept(rig: Rig, folder: Path) -> None:
    """Write what a manager keeps into a state folder, as its process does."""
    journal = Journal(folder, compact)
    journal.cluster_ts(1_700_000_000_000)
    journal.keep_clock(KeptClock(1_700_000_000.0, 10.0))
    journal.append(rig.records)
    journal.close()


def lived() -> Rig:
    rig = Rig()
    rig.add_node("n1")
    rig.allocate(rig.start(job("one", stage(tasks=3))), ask(1, 3))
    rig.beat()
    return rig


def test_a_copy_is_checked_and_says_what_it_holds(tmp_path: Path) -> None:
    kept(lived(), tmp_path / "state")
    found = backup(tmp_path / "state", tmp_path / "copy")
    assert (found.lives, found.newest_app, dict(found.applications)) == (1, 1, {"not ended": 1})
    assert found == check(tmp_path / "state")
    assert not found.queues_set
    with pytest.raises(WeftError, match="is not empty"):
        backup(tmp_path / "state", tmp_path / "copy")
    with pytest.raises(WeftError, match="has a journal"):
        restore(tmp_path / "copy", tmp_path / "state")


def test_a_damaged_state_is_neither_copied_nor_restored(tmp_path: Path) -> None:
    kept(lived(), tmp_path / "state")
    backup(tmp_path / "state", tmp_path / "copy")
    for folder in ("state", "copy"):
        path = tmp_path / folder / "journal.jsonl"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(WeftError, match=r"line \d+ is no record"):
            check(tmp_path / folder)
    with pytest.raises(WeftError, match="is no record"):
        backup(tmp_path / "state", tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(WeftError, match="is no record"):
        restore(tmp_path / "copy", tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()
    said = CliRunner().invoke(weft, ["journal", "check", str(tmp_path / "state")])
    assert said.exit_code != 0


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"next","app":Infinity}',
        '{"kind":"start","count":[]}',
        '{"kind":"queues","queues":{"root":{"a":5}}}',
        '{"kind":' * 100_000,
    ],
)
def test_a_copy_that_no_manager_could_start_from_is_refused_in_words(
    text: str, tmp_path: Path
) -> None:
    kept(Rig(), tmp_path / "copy")
    path = tmp_path / "copy" / "journal.jsonl"
    count = len(path.read_bytes().splitlines())
    line = f"{count} {text}".encode()
    with path.open("ab") as out:
        out.write(b"%08x %b\n" % (zlib.crc32(line), line))
    with pytest.raises(WeftError, match=r"not of this version|is no record"):
        restore(tmp_path / "copy", tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()


def test_a_restored_manager_takes_nothing_of_what_came_after_for_its_own(tmp_path: Path) -> None:
    """Application 2 and its containers came after the copy: no number of theirs comes again."""
    rig = lived()
    kept(rig, tmp_path / "state")
    backup(tmp_path / "state", tmp_path / "copy")
    next_life = Rig(records=rig.records)
    next_life.add_node("n1")
    later = next_life.start(job("two", stage(tasks=1)))
    next_life.allocate(later, ask(1, 1))
    next_life.beat()
    next_life.allocate(later)
    lost = list(later.containers)
    assert lost
    (tmp_path / "state").rename(tmp_path / "lost")
    found = restore(tmp_path / "copy", tmp_path / "state")
    assert clock_in(tmp_path / "state") == KeptClock(1_700_000_000.0, 10.0)
    assert found.lives == 1 + LIVES_SKIPPED
    journal = Journal(tmp_path / "state", compact)
    again = Rig(records=journal.read())
    journal.close()
    assert sorted(again.manager.books.apps) == [1]
    assert again.submit(job("three")) == 2 + APPLICATIONS_SKIPPED
    epoch = again.manager.books.epoch
    assert epoch == 1 + LIVES_SKIPPED
    assert all(granted_before(number, epoch) for number in lost)
    assert again.manager.books.apps[1].job.name == "one"


def test_a_journal_is_copied_while_it_is_written_and_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy has a whole number of batches, and none that was durable before is missing."""
    monkeypatch.setattr("rm.process.store.COMPACT_AFTER_BYTES", 2_000)
    journal = Journal(tmp_path / "state", list)
    journal.cluster_ts(1)
    written, over = 0, threading.Event()

    def write() -> None:
        nonlocal written
        while not over.is_set():
            journal.append(
                [{"kind": "next", "app": written + 1}, {"kind": "next", "app": written + 1}]
            )
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(20):
            before = written
            found = backup(tmp_path / "state", tmp_path / f"copy-{number}")
            assert found.newest_app >= before - 1
            assert found.newest_app <= written
    finally:
        over.set()
        writer.join()
        journal.close()


def test_the_commands_say_it_in_lines_and_as_data(tmp_path: Path) -> None:
    kept(lived(), tmp_path / "state")
    run = CliRunner()
    state, copy, fresh = (str(tmp_path / name) for name in ("state", "copy", "fresh"))
    said = run.invoke(weft, ["journal", "backup", state, copy])
    assert said.exit_code == 0, said.output
    assert "applications: 1 not ended; the newest has number 1" in said.output
    told = run.invoke(weft, ["journal", "restore", copy, fresh, "--json"])
    assert json.loads(told.output)["lives"] == 1 + LIVES_SKIPPED
