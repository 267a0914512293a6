"""A host without room says so, and which room it lacks."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from nm.process.disks import MB, Disk, Health


def disk_of(monkeypatch: pytest.MonkeyPatch, free_mb: float, **more: int) -> None:
    """Have every folder be on a disk of 1,000 MB with 10,000 inodes."""
    inodes = {"f_files": 10_000, "f_favail": 9_000} | more
    found = SimpleNamespace(f_frsize=MB, f_blocks=1000, f_bavail=free_mb, **inodes)
    monkeypatch.setattr(os, "statvfs", lambda path: found)


@pytest.mark.parametrize(
    ("free_mb", "inodes", "said"),
    [
        (101, 9_000, ""),
        (99, 9_000, "is 90 % full (at most 90 %)"),
        (0, 9_000, "is 100 % full (at most 90 %)"),
        (500, 99, "has room for 99 more files only"),
    ],
)
def test_a_disk_is_full_above_a_share_and_without_inodes(
    free_mb: int, inodes: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_of(monkeypatch, free_mb, f_favail=inodes)
    report = Disk(tmp_path, 90.0, 50.0).look()
    assert report == (f"the disk of {tmp_path} {said}" if said else "")
    assert not list(tmp_path.iterdir())


def test_a_disk_is_full_below_a_floor_and_either_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_of(monkeypatch, 80)
    assert Disk(tmp_path, 100.0, 100.0).look().endswith("has 80 MB left (at least 100 MB)")
    assert Disk(tmp_path, 100.0, 0.0).look() == ""
    assert not Disk(tmp_path).full
    disk_of(monkeypatch, 0.5)
    assert Disk(tmp_path).full


def test_a_disk_that_cannot_be_written_to_is_unfit_whatever_room_it_has(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert Disk(gone).look() == f"{gone} cannot be written to: No such file or directory"
    (tmp_path / ".probe").symlink_to("/dev/null")
    assert "cannot be written to" in Disk(tmp_path).look(), "never through a link"


def test_what_several_say_of_a_host_is_one_report_told_when_it_changes() -> None:
    told: list[tuple[str, str]] = []
    health = Health(("n1", "n2"), lambda node, report: told.append((node, report)))
    health.say("disk", "full")
    health.say("disk", "full")
    health.say("script", "ERROR hot", "n2")
    health.say("disk", "")
    health.say("script", "", "n2")
    assert told == [
        ("n1", "full"),
        ("n2", "full"),
        ("n2", "full; ERROR hot"),
        ("n1", ""),
        ("n2", "ERROR hot"),
        ("n2", ""),
    ]
