"""Processes beside this one that a Ctrl-C does not reach: who started them ends them, at once."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from weft.runtime.other_process import end_with

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_Handler = Callable[[int, FrameType | None], Any] | int


class WorkerPool(ProcessPoolExecutor):
    """A pool whose processes end with the block that it was made for, if that fails in mid-work.

    A terminal tells all processes of a command of a Ctrl-C. The pools of Python have each worker
    fail by it, one that starts with a traceback, then go on with what was handed to them already.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(workers, context, _begin, (os.getpid(),))
        self._handler: _Handler | None = None

    def submit(
        self, fn: Callable[_Given, _Answer], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> Future[_Answer]:
        """Hand in a call; a process that starts for it never hears of a Ctrl-C."""
        with _interrupts_wait():
            return super().submit(fn, *args, **kwargs)

    def __enter__(self) -> Self:
        """Have the first Ctrl-C alone raise KeyboardInterrupt until the pool has ended.

        A second one would fall into the locks of who waits for the workers, and be another error.
        """
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, _interrupt_once)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what was handed in; after an error, also a Ctrl-C, end what runs instead."""
        try:
            if kind is None:
                super().__exit__(kind, error, trace)
                return
            with _interrupts_wait():
                for worker in list((self._processes or {}).values()):
                    worker.kill()
                self.shutdown(wait=True, cancel_futures=True)
        finally:
            if self._handler is not None:
                signal.signal(signal.SIGINT, self._handler)


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.default_int_handler(number, frame)


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
