"""A host of masters that is told to end does not wait for a plan that is still being made."""

import subprocess
import sys

import pytest

# The worker would plan for an hour; a pool that is not ended keeps the interpreter as long.
ENDS = """
import multiprocessing, time
from am.process.planning import Planning

if __name__ == "__main__":
    planning = Planning(1, 30.0)
    pool = planning._executor("graphene", 1)
    work = pool.submit(time.sleep, 3600.0)
    while not work.running():
        time.sleep(0.01)
    planning.close()
    for worker in multiprocessing.active_children():
        worker.join()
    print("ended")
"""


@pytest.mark.slow
def test_a_plan_under_way_does_not_keep_its_host(tmp_path):
    script = tmp_path / "ends.py"  # a worker that is spawned imports it
    script.write_text(ENDS)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stderr


ORPHANED = """
import os, sys, time
from weft.runtime.other_process import end_with

if os.fork() == 0:  # its parent is gone before it asks who that is
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle:
            time.sleep(0.01)
        end_with(middle)
        time.sleep(3600.0)
    os._exit(0)
os.wait()
"""


def test_a_worker_whose_parent_died_before_it_asked_ends(tmp_path):
    """The pipe has an end once the worker is gone, as it holds the last of its other end."""
    started = subprocess.run(
        [sys.executable, "-c", ORPHANED], capture_output=True, text=True, timeout=60, check=False
    )
    assert started.returncode == 0, started.stderr
