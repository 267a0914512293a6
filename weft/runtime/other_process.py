"""Another process of this host, by its number: has it ended?

A process that is to end with the one that started it is told that one's number: whoever asks for
its parent when it has been loaded may be told of another, as the first died meanwhile.
"""

import os
import select
import threading
import time
from collections.abc import Callable

_POLL_S = 0.5


class OtherProcess:
    """A process that is known by its number; 0: none, which never ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._file = -1
        if pid and hasattr(os, "pidfd_open"):
            try:
                self._file = os.pidfd_open(pid)
            except OSError:
                # It is gone, or this kernel knows no such files: `ended` asks.
                self._file = -1

    @property
    def ended(self) -> bool:
        """Whether it has ended, also where nobody has asked yet how."""
        if not self._pid:
            return False
        if self._file >= 0:
            poll = select.poll()
            poll.register(self._file, select.POLLIN)
            return bool(poll.poll(0))
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            # It is another user's.
            return False
        return False

    def close(self) -> None:
        """Stop looking."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._pid = 0


def end_with(pid: int, end: Callable[[], object] = lambda: os._exit(1)) -> None:
    """End this process with another one, even one that was killed before this was asked.

    A thread looks, so it does not matter what this process waits for meanwhile.
    """

    def watch() -> None:
        other = OtherProcess(pid)
        while not other.ended:
            time.sleep(_POLL_S)
        end()

    threading.Thread(target=watch, daemon=True).start()
