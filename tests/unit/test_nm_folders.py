"""What goes and what stays of applications' files on a host, and when."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from nm.process import keeping
from nm.process.folders import bound_logs, logs, read_log, shorten
from nm.process.keeping import Keeper
from weft.runtime.removing import Left

FOREIGN = "container_1_0001_01_000001"


def foreign(app: Path, name: str = FOREIGN) -> Path:
    """A container as a launcher leaves it."""
    folder = app / name
    (folder / "tmp" / "deep").mkdir(parents=True)
    for file in ("stdout", "prelaunch.out", "jobmanager.log", "syslog_dag_1", "container_tokens"):
        (folder / file).write_text(file)
    (folder / "link.log").symlink_to(app / "filecache")
    return folder


def own(app: Path, name: str) -> Path:
    """A container of a task, and ..."""
    folder = app / name
    folder.mkdir(parents=True)
    for file in ("stdout", "stderr", "scratch", "huge.out"):
        (folder / file).write_text(file)
    (folder / "1-2-3").mkdir()
    return folder


def reusable(app: Path, name: str) -> Path:
    """... a reusable one with two of them."""
    folder = app / name
    for task in ("0-1-0", "0-2-0"):
        (folder / task / "deep").mkdir(parents=True)
        for file in ("stdout", "stderr", "scratch"):
            (folder / task / file).write_text(task)
    (folder / "0-1-0-x").mkdir()
    (folder / "scratch").touch()
    return folder


def below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


async def drive(keeper: Keeper) -> None:
    await keeper.finish()
    keeper.close()


def test_all_but_logs_goes_when_an_application_is_over(tmp_path: Path) -> None:
    app = tmp_path / "application_1_0001"
    folders = [
        foreign(app),
        own(app, "container_1_0001_01_000002"),
        reusable(app, "container_1_0001_01_000003"),
        own(app, "container_1_0001_01_000004"),
    ]
    for kept in ("filecache", "local"):
        (app / kept / "inner").mkdir(parents=True)

    async def main() -> None:
        keeper = Keeper(tmp_path)
        keeper.over(app.name, [folders[3].name])
        keeper.over("application_1_0002")
        await asyncio.sleep(0.01)
        await keeper.finish()
        assert "scratch" in below(folders[3]), "something runs there"
        assert (app / "local").is_dir(), "for that"
        keeper.over(app.name)
        await asyncio.sleep(0.01)
        await drive(keeper)

    asyncio.run(main())
    assert {p.name for p in app.iterdir()} == {f.name for f in folders}
    assert below(folders[0]) == {"stdout", "prelaunch.out", "jobmanager.log", "syslog_dag_1"}
    assert below(folders[1]) == {"stdout", "stderr"}
    kept = {f"0-{task}-0/{name}" for task in (1, 2) for name in ("stdout", "stderr")}
    assert below(folders[2]) == kept
    assert below(folders[3]) == {"stdout", "stderr"}
    assert logs(folders[0]) == ["jobmanager.log", "prelaunch.out", "stdout", "syslog_dag_1"]
    assert logs(folders[2]) == sorted(kept)


def test_a_start_clears_what_the_last_one_left_but_for_what_still_runs(tmp_path: Path) -> None:
    going, gone = tmp_path / "application_1_0001", tmp_path / "application_1_0002"
    runs, ended = own(going, FOREIGN), own(going, "container_1_0001_01_000002")
    left = own(gone, "container_1_0002_01_000001")
    (tmp_path / "application_x").mkdir()
    (tmp_path / "application_1_0003").symlink_to(going)
    (going / "local").mkdir()
    here = os.open(left, os.O_RDONLY)
    for _ in range(1_100):  # deeper than any stack
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    time.sleep(0.01)

    async def main() -> None:
        keeper = Keeper(tmp_path)
        keeper.begin({going.name: [runs.name]})
        # Times of files lag behind the clock by up to one of the kernel's ticks.
        began_s, probe = time.time(), tmp_path / "probe"
        probe.touch()
        while probe.stat().st_mtime <= began_s:
            probe.touch()
        new = own(gone, "container_1_0002_01_000009")  # of a number that is given again
        await drive(keeper)
        assert "scratch" in below(new)

    asyncio.run(main())
    assert "scratch" in below(runs)
    assert (going / "local").is_dir()
    assert below(ended) == below(left) == {"stdout", "stderr"}


def test_logs_go_after_their_time_unless_the_application_runs_here_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "SWEEP_S", 0.05)
    for number in (1, 2, 3):
        own(tmp_path / f"application_1_000{number}", f"container_1_000{number}_01_000001")
    os.utime(tmp_path / "application_1_0001", (0, 0))
    os.utime(tmp_path / "application_1_0002", (0, 0))

    async def main() -> None:
        keeper = Keeper(tmp_path, log_retain_s=60.0)
        keeper.begin({"application_1_0003": ["container_1_0003_01_000001"]})
        sweep = asyncio.create_task(keeper.sweep(lambda: {"application_1_0002"}))
        gone = tmp_path / "application_1_0001"
        while gone.exists():
            await asyncio.sleep(0.01)
        sweep.cancel()
        await drive(keeper)

    asyncio.run(asyncio.wait_for(main(), 20))
    assert {p.name for p in tmp_path.iterdir()} == {"application_1_0002", "application_1_0003"}


def test_debug_delay_keeps_the_files_for_who_looks(tmp_path: Path) -> None:
    folder = own(tmp_path / "application_1_0001", FOREIGN)

    async def main() -> None:
        keeper = Keeper(tmp_path, debug_delay_s=0.3)
        keeper.over("application_1_0001")
        await keeper.finish()
        assert "scratch" in below(folder)
        while "scratch" in below(folder):
            await asyncio.sleep(0.01)
        await drive(keeper)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_what_cannot_be_removed_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own(tmp_path / "application_1_0001", FOREIGN)
    told: list[tuple[str, Left]] = []
    unlink = os.unlink

    def stubborn(name: str, **more: int) -> None:
        if name in ("scratch", "huge.out"):
            raise PermissionError(13, "Operation not permitted")
        unlink(name, **more)

    async def main() -> None:
        keeper = Keeper(tmp_path, warn=lambda app, left: told.append((app, left)))
        keeper.over("application_1_0001")
        await asyncio.sleep(0.01)
        await drive(keeper)
        await asyncio.sleep(0)

    monkeypatch.setattr(os, "unlink", stubborn)
    asyncio.run(main())
    assert [(app, left.count) for app, left in told] == [("application_1_0001", 2)]
    assert "scratch" in below(folder)


def test_a_long_log_loses_its_middle_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b"begin" + b"x" * 5_000_000 + b"end")
    file = os.open(path, os.O_RDWR)
    shorten(file, 10_000)
    data = path.read_bytes()
    assert len(data) < 10_100
    assert (data[:5], data[-3:]) == (b"begin", b"end")
    assert b"bytes are left out here, as this log is longer than 10000]" in data
    shorten(file, 10_100)
    assert path.read_bytes() == data
    os.link(path, tmp_path / "other")
    shorten(file, 100)
    assert path.read_bytes() == data, "it may be another's file"
    os.close(file)


def test_only_logs_are_read_and_only_where_they_are_written(tmp_path: Path) -> None:
    folder = reusable(tmp_path, FOREIGN)
    assert read_log(folder, "0-1-0/stdout", 2, 1) == (b"1", 3)
    (folder / "0-1-0" / "deep" / "stdout").touch()
    (folder / "0-9-0").symlink_to(folder / "0-1-0")
    names = ("0-1-0/deep/stdout", "0-1-0/scratch", "../x/stdout", "scratch", "0-9-0/stdout")
    for name in names:
        with pytest.raises(FileNotFoundError):
            read_log(folder, name, 0, 10)


def test_a_log_that_is_still_written_loses_its_middle_and_nobody_his_place(tmp_path: Path) -> None:
    """On a file system with holes, which those for work have."""
    folder = own(tmp_path, "container_1_0001_01_000001")
    lines = [f"{number:07d}\n".encode() for number in range(131_072)]
    with (folder / "stdout").open("ab", buffering=0) as log:
        log.truncate(0)
        log.write(b"".join(lines))
        assert read_log(folder, "stdout", 0, 16) == (b"".join(lines[:2]), 16)
        bound_logs(folder, 64 << 10)
        log.write(b"".join(lines))
        bound_logs(folder, 64 << 10)
        assert (folder / "stdout").stat().st_blocks * 512 <= 72 << 10
        assert (folder / "stdout").stat().st_size == 2 << 20
        log.write(b"last")
    shown, at = b"", 0
    while True:
        data, after = read_log(folder, "stdout", at, 10_000)
        if not data:
            break
        shown, at = shown + data, after
    assert shown.startswith(b"".join(lines[:4_096]) + b"\n[weft: ")
    assert shown.endswith(lines[-1] + b"last")
    assert shown.count(b"left out here") == 1
    assert at == (2 << 20) + 4
    assert read_log(folder, "stdout", at - 4, 10) == (b"last", at), "whoever reads on goes on there"
    other = folder / "stderr"
    other.write_bytes(b"x" * (1 << 20))
    (folder / "stderr2").hardlink_to(other)
    bound_logs(folder, 64 << 10)
    assert other.read_bytes() == b"x" * (1 << 20), "it may be somebody else's"


def test_a_log_that_is_another_file_as_well_is_read_by_nobody(tmp_path: Path) -> None:
    """A task may give a file of this disk a second name, without leave to read it."""
    (tmp_path / "secret").write_text("secret")
    os.link(tmp_path / "secret", tmp_path / "stdout")
    assert logs(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path, "stdout", 0, 10)
    (tmp_path / "secret").unlink()
    assert read_log(tmp_path, "stdout", 0, 10) == (b"secret", 6)
