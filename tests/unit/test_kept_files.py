"""What takes the place of a kept file is told by name, and nothing waits for it or is made anew."""

import asyncio
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from am.process.history import HistoryFile
from rm.process.state import from_folder
from weft.model.errors import WeftError
from weft.runtime.kept_file import read_kept, write_kept
from weft.runtime.role_settings import RmSettings
from weft.yarn.store import Store
from weft.yarn.tokens import TokenKeeper


def _manager(folder: Path) -> None:
    asyncio.run(from_folder(RmSettings(state_dir=folder, epoch_s=0.0), 1_000).end())


def _gateway(folder: Path) -> None:
    TokenKeeper(folder / "tokens.json")


def _ports(folder: Path) -> None:
    Store(folder).keep_port("n1", 8_042)


def _history(folder: Path) -> None:
    history = HistoryFile(folder / "history.json")
    history.add("job", {"work": {"task_s": 1.0}})


KEPT: dict[str, Callable[[Path], None]] = {
    "lock": _manager,
    "journal.jsonl": _manager,
    "durable": _manager,
    "cluster_ts": _manager,
    "clock": _manager,
    "keys.json": _manager,
    "tokens.json": _gateway,
    "ports.json": _ports,
    "history.json": _history,
}
OBSTACLES: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path),
    "link that leads nowhere": lambda path: path.symlink_to(path.with_name("gone")),
    "pipe": os.mkfifo,
}
# They are written in place, so the file that a link leads to is made.
MADE = [("lock", "link that leads nowhere"), ("durable", "link that leads nowhere")]


@pytest.mark.parametrize(
    ("name", "obstacle"),
    [pair for pair in product(KEPT, OBSTACLES) if pair not in MADE],
)
def test_what_is_no_file_ends_a_start_with_its_name(
    name: str, obstacle: str, tmp_path: Path
) -> None:
    use = KEPT[name]
    use(tmp_path)
    path = tmp_path / name
    path.unlink()
    OBSTACLES[obstacle](path)
    with pytest.raises(WeftError, match=name):
        use(tmp_path)


def test_what_is_kept_is_read_back_and_only_its_owner_sees_it(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    assert read_kept(path) is None
    path.with_suffix(".new").write_text("left by a crash")
    path.with_suffix(".new").chmod(0o666)
    write_kept(path, b"first")
    write_kept(path, b"second")
    assert read_kept(path) == b"second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["kept"]
