"""For tests only: a TCP relay whose connections break, so that what was on its way is lost."""

import contextlib
import socket
import threading
from collections.abc import Iterator

_PIECE = 1 << 16


class Relay:
    """Takes connections at `address` and hands bytes on, both ways; `cut` breaks all of them."""

    def __init__(self, target: str) -> None:
        """`target` is host:port."""
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        # So many connections were broken.
        self.cuts = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
            except OSError:
                if self._server.fileno() < 0:
                    return
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._hand_on, args=(source, sink), daemon=True).start()

    def _hand_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                sink.sendall(data)
        with self._lock:
            for one in (source, sink):
                _break(one)
                self._open.discard(one)

    def cut(self) -> None:
        """Break every connection, whatever is on its way."""
        with self._lock:
            for one in self._open:
                _break(one)
            self.cuts += len(self._open) // 2

    def close(self) -> None:
        """Take no more connections and break those there are."""
        self._server.close()
        self.cut()


def _break(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutting(relay: Relay, every_s: float) -> Iterator[None]:
    """Break the relay's connections time and again."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            relay.cut()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
