"""Processes beside this one that a Ctrl-C does not reach: who started them ends them, at once."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec, TypeVar

from weft.runtime.other_process import end_with

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


class WorkerPool(ProcessPoolExecutor):
    """A pool whose processes end with the block that it was made for, if that fails in mid-work.

    A terminal tells all processes of a command of a Ctrl-C. The pools of Python have each worker
    fail by it, one that starts with a traceback, then go on with what was handed to them already.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(workers, context, _begin, (os.getpid(),))

    def submit(
        self, fn: Callable[_Given, _Answer], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> Future[_Answer]:
        """Hand in a call; a process that starts for it never hears of a Ctrl-C."""
        with _interrupts_wait():
            return super().submit(fn, *args, **kwargs)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what was handed in; after an error, also a Ctrl-C, end what runs instead."""
        if kind is None:
            super().__exit__(kind, error, trace)
            return
        # A second Ctrl-C finds nobody who waits: it is heard when all have ended.
        with _interrupts_wait():
            for worker in list((self._processes or {}).values()):
                worker.kill()
            self.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Have a Ctrl-C wait for the end of the block; processes that start there have it blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int) -> None:
    """Ignore what the terminal says, which was blocked until here, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with(parent)
