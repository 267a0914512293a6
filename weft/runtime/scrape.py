"""The Prometheus endpoint: series as lines of text, and a server on a thread of its own.

The text is made here rather than by prometheus_client, whose scrape of a thousand nodes holds the
interpreter, and with it the event loop, for 0.2 s; this one takes 0.03 s.
"""

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any

from weft.model.errors import WeftError
from weft.runtime.http_door import HEADERS, Door

Labels = tuple[tuple[str, str], ...]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABEL_TEXTS_KEPT_MAX = 50_000
# Names repeat so much that more effort gains little.
GZIP_LEVEL = 1
# A slower reader is dropped.
TIMEOUT_S = 30.0
# The head of a request is this long at most.
HEAD_BYTES_MAX = 16 << 10
# Each connection has a thread; of more at a time the oldest makes room.
CONNECTIONS_MAX = 50


class Lines:
    """Families as lines of Prometheus's text format 0.0.4."""

    def __init__(self) -> None:
        # Nodes and their labels are the same at every scrape.
        self._known: dict[Labels, str] = {}

    def family(
        self, kind: str, name: str, text: str, series: Iterable[tuple[Labels, float]]
    ) -> list[str]:
        """Return the lines of a gauge or a counter (whose name gets its `_total`)."""
        full = f"{name}_total" if kind == "counter" else name
        known, braces = self._known.get, self._braces
        rows = [f"{full}{known(labels) or braces(labels)} {value}" for labels, value in series]
        return [*_head(full, text, kind), *rows] if rows else []

    def histogram(
        self,
        name: str,
        text: str,
        series: Iterable[tuple[Labels, Iterable[tuple[str, float]], float]],
    ) -> list[str]:
        """Return the lines of a histogram; a series: labels, buckets (bound, count so far), sum."""
        lines: list[str] = []
        for labels, buckets, total in series:
            own = self._known.get(labels) or self._braces(labels)
            inner = f"{own[1:-1]}," if own else ""
            count = 0.0
            for bound, count in buckets:
                lines.append(f'{name}_bucket{{{inner}le="{bound}"}} {count}')
            lines.append(f"{name}_count{own} {count}")
            lines.append(f"{name}_sum{own} {total}")
        return [*_head(name, text, "histogram"), *lines] if lines else []

    def _braces(self, labels: Labels) -> str:
        if not labels:
            return ""
        if len(self._known) >= LABEL_TEXTS_KEPT_MAX:
            self._known = {}
        inner = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
        made = self._known[labels] = f"{{{inner}}}"
        return made


def _head(name: str, text: str, kind: str) -> tuple[str, str]:
    told = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {told}", f"# TYPE {name} {kind}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


class _Head:
    """Lines of a file, which ends where they become too long together."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        self._left = HEAD_BYTES_MAX

    def readline(self, most: int) -> bytes:
        """Return the next line, or as much of it as there is room for."""
        line = self._file.readline(min(most, self._left))
        self._left -= len(line)
        if not self._left:
            raise ConnectionAbortedError("the head of the request is too long")
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def serve(
    host: str,
    port: int,
    text: Callable[[], bytes],
    secured: ssl.SSLContext | None = None,
    allowed_hosts: Sequence[str] = (),
) -> str:
    """Serve what `text` answers at every path, each request on a thread; returns host:port.

    `secured`: by TLS; `allowed_hosts`: more names that it goes by. Raises WeftError when the port
    is in use.
    """

    door = Door([host, *allowed_hosts])
    opened: dict[Any, None] = {}
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT_S

        def setup(self) -> None:
            """Read no longer a head than one should be."""
            super().setup()
            self.rfile = _Head(self.rfile)  # type: ignore[assignment] # it has what is used

        def do_GET(self) -> None:
            """Answer one scrape."""
            refused = door.refusal(self.command, self.path, dict(self.headers))
            if refused is not None:
                self.send_error(*refused)
                return
            body = text()
            headers: Mapping[str, str] = {**HEADERS, "Content-Type": CONTENT_TYPE}
            if "gzip" in self.headers.get("Accept-Encoding", ""):
                body = gzip.compress(body, GZIP_LEVEL)
                headers = {**headers, "Content-Encoding": "gzip"}
            self.send_response(200)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a scrape is no news."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = CONNECTIONS_MAX

        def process_request(self, request: Any, client_address: Any) -> None:
            """Serve a connection on a thread."""
            with lock:
                opened[request] = None
                oldest = next(iter(opened)) if len(opened) > CONNECTIONS_MAX else None
                opened.pop(oldest, None)
            if oldest is not None:
                # Its thread may be in the middle of TLS, which is not to be touched.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            """End a connection; its thread is about to end."""
            with lock:
                opened.pop(request, None)
            super().shutdown_request(request)

        def handle_error(self, request: object, client_address: object) -> None:
            """Log nothing: a reader that went away is no news either."""

    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        Server.address_family = family
        server = Server((str(place[0]), int(place[1])), Handler)
        if secured is not None:
            # The handshake runs on the reader's own thread.
            server.socket = secured.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
    except OSError as error:
        reason = error.strerror or str(error)
        raise WeftError(f"cannot serve metrics on {host}:{port}: {reason.lower()}") from None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return f"{host}:{server.server_port}"
