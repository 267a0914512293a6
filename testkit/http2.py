"""A gRPC peer made of bytes, which does what no client library would: half messages, answers that
nobody reads, streams without end.
"""

import socket
import struct
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
FRAME_BYTES = 16_384
WINDOW = 65_535


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + stream.to_bytes(4) + payload


def message(body: bytes, *, compressed: bool = False) -> bytes:
    """Return a message as gRPC frames it."""
    return bytes([compressed]) + struct.pack(">I", len(body)) + body


def _field(name: str, value: str) -> bytes:
    """Return a header as HPACK writes one that is in no table; neither is longer than 126."""
    words = [word.encode() for word in (name, value)]
    return b"\x00" + b"".join(bytes([len(word)]) + word for word in words)


class Connection:
    """One connection to a gRPC server; `window` is what the server may send unasked, bytes."""

    def __init__(self, address: str, *, window: int = WINDOW, timeout_s: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        self._heard = b""
        self._windows = {0: WINDOW}
        self._stream_window = WINDOW
        self._next_stream = 1
        # Streams that the server reset or ended, and whether it says good-bye.
        self.ended: set[int] = set()
        # Streams of which an answer begins.
        self.answered: set[int] = set()
        self.gone = False
        self.received = 0

    def call(self, method: str, headers: Iterable[tuple[str, str]] = ()) -> int:
        """Begin a call of `/service/Method`; returns its stream's number."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._windows[stream] = self._stream_window
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "x"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *headers,
        ]
        block = b"".join(_field(*field) for field in fields)
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, block))
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send bytes of a call as the server's windows let it; raises OSError once it hung up."""
        view = memoryview(data)
        while view or end:
            room = min(len(view), FRAME_BYTES, self._windows[0], self._windows[stream])
            if view and room <= 0:
                self.hear()
                if stream in self.ended:
                    raise ConnectionError("the call is over")
                continue
            piece, view = bytes(view[:room]), view[room:]
            self._windows[0] -= len(piece)
            self._windows[stream] -= len(piece)
            last = end and not view
            self.socket.sendall(frame(DATA, END_STREAM if last else 0, stream, piece))
            if last:
                return

    def hear(self) -> None:
        """Take in what the server sent, waiting for some; raises OSError where it hung up."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("hung up")
        self._heard += data
        while len(self._heard) >= 9:
            size = int.from_bytes(self._heard[:3])
            if len(self._heard) < 9 + size:
                return
            kind, flags = self._heard[3], self._heard[4]
            stream = int.from_bytes(self._heard[5:9]) & 0x7FFFFFFF
            payload, self._heard = self._heard[9 : 9 + size], self._heard[9 + size :]
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload)
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == INITIAL_WINDOW_SIZE:
                    for known in self._windows.keys() - {0}:
                        self._windows[known] += value - self._stream_window
                    self._stream_window = value
            self.socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == DATA:
            self.received += len(payload)
        elif kind == HEADERS:
            self.answered.add(stream)
        elif kind == GOAWAY:
            self.gone = True
        if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self.ended.add(stream)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
