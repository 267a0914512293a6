"""Workers of a command hear nothing of a Ctrl-C: it is the command that ends them."""

import multiprocessing
import os
import signal
import time
from concurrent.futures import Future

import pytest

from lab.worker_pool import WorkerPool
from weft.runtime.other_process import OtherProcess


@pytest.mark.slow
def test_a_ctrl_c_reaches_no_worker_and_what_fails_ends_all_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also in a worker that has only just begun, and whatever was handed in."""
    endless: list[Future[None]] = []
    others: list[OtherProcess] = []
    with pytest.raises(KeyboardInterrupt):
        _interrupted(endless, others)
    assert all(one.done() for one in endless)
    assert all(other.ended for other in others)
    assert not capfd.readouterr().err


def _interrupted(endless: list[Future[None]], others: list[OtherProcess]) -> None:
    with WorkerPool(2) as pool:
        asked = [pool.submit(os.getpid) for _ in range(4)]
        for worker in multiprocessing.active_children():
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGINT)
        pids = {one.result() for one in asked}
        others += [OtherProcess(pid) for pid in pids]
        endless += [pool.submit(time.sleep, 1e6) for _ in range(9)]
        raise KeyboardInterrupt


def test_a_ctrl_c_that_is_pressed_twice_interrupts_once() -> None:
    handled = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cleaned: list[bool] = []
    try:
        with pytest.raises(KeyboardInterrupt):
            _pressed_twice(cleaned)
        assert cleaned
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, handled)


def _pressed_twice(cleaned: list[bool]) -> None:
    with WorkerPool(1):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleaned.append(True)
