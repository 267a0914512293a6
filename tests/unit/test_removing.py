"""Trees that tasks built to stay are removed, and nothing else is."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from weft.runtime.removing import Left, acting_as, empty

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


def emptied(folder: Path, owner: tuple[int, int] | None = None) -> Left:
    left = Left()
    place = os.open(folder, os.O_RDONLY)
    try:
        with acting_as(owner):
            empty(place, left)
    finally:
        os.close(place)
    return left


def deep(folder: Path, depth: int) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_tree_deeper_than_any_stack_goes_with_few_open_files(tmp_path: Path) -> None:
    deep(tmp_path, 1_100)
    most = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            most[0] = max(most[0], len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    watcher = threading.Thread(target=watch)
    watcher.start()
    left = emptied(tmp_path)
    done.set()
    watcher.join()
    assert (left.count, os.listdir(tmp_path)) == (0, [])
    assert most[0] <= before + 12


def test_wide_readonly_and_linked_trees_go_and_what_links_show_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    inside = tmp_path / "inside"
    (inside / "shut" / "shut").mkdir(parents=True)
    for number in range(300):
        (inside / f"n{number}").mkdir()
        (inside / "shut" / f"f{number}").touch()
    (inside / "n5" / "up").symlink_to("../..")
    (inside / "out").symlink_to(outside)
    (inside / "shut" / "hard").hardlink_to(outside / "precious")
    os.mkfifo(inside / "pipe")
    (inside / "shut" / "shut" / "x").touch()
    (inside / "shut" / "shut").chmod(0)
    (inside / "shut").chmod(0o500)
    assert emptied(inside).count == 0
    assert os.listdir(inside) == []
    assert (outside / "precious").read_text() == "kept"


@root_only
def test_a_user_that_is_acted_as_cannot_be_made_to_remove_what_is_not_his(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "roots").mkdir(parents=True)
    (folder / "roots" / "file").touch()
    (folder / "own").mkdir()
    (folder / "own" / "file").touch()
    (folder / "own").chmod(0)
    for path in folder, folder / "own":
        os.chown(path, 65534, 65534)
    left = emptied(folder, (65534, 65534))
    assert os.listdir(folder) == ["roots"]
    assert os.listdir(folder / "roots") == ["file"]
    assert left.first == "'file': Permission denied"
    assert emptied(folder).count == 0, "root may again"


MOUNTED = """
import os, subprocess, sys
from pathlib import Path
from tests.unit.test_removing import emptied
inside, outside = Path(sys.argv[1]) / "in", Path(sys.argv[1]) / "out"
(inside / "a" / "door").mkdir(parents=True)
(inside / "b").mkdir()
outside.mkdir()
(outside / "precious").touch()
subprocess.run(["mount", "--bind", outside, inside / "a" / "door"], check=True)
left = emptied(inside)
assert left.count and "busy" in left.first or "mounted" in left.first, left
assert os.listdir(outside) == ["precious"]
assert not (inside / "b").exists()
"""


@root_only
def test_what_is_mounted_inside_stays_also_if_it_is_of_the_same_disk(tmp_path: Path) -> None:
    words = ["unshare", "--mount", sys.executable, "-c", MOUNTED, str(tmp_path)]
    subprocess.run(words, check=True, timeout=60)


def test_who_makes_names_all_the_time_does_not_hold_it_up(tmp_path: Path) -> None:
    done = threading.Event()

    def make() -> None:
        number = 0
        while not done.is_set():
            number += 1
            (tmp_path / f"n{number}").touch()
            time.sleep(0.0002)

    maker = threading.Thread(target=make)
    maker.start()
    try:
        emptied(tmp_path)
    finally:
        done.set()
        maker.join()
    assert emptied(tmp_path).count == 0
    assert os.listdir(tmp_path) == []
