"""What came over connections and is no message yet: bounded for all callers of a port together.

gRPC keeps the parts of a message until the last one is there, and tells nobody. The kernel counts
what came over each connection, and this process knows which messages it read: the difference is
what is kept. Above the bound, connections that hold some for longest are shut. A thread looks, as
the event loop may be busy with what came before, and only where the process has grown.
"""

import contextlib
import ctypes
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# All callers together may have so much on the way.
UNREAD_BYTES_MAX = 8 << 20
# What is less than this is no message that is kept.
UNREAD_BYTES_MIN = 256 << 10
# The process is looked at so often, and more often for a while once much was kept.
LOOK_S, QUICK_S, QUICK_FOR_S = 0.02, 0.004, 5.0
# After a growth what the allocator keeps of what was freed is given back so often, for so long.
TRIM_S, TRIM_FOR_S = 0.25, 5.0
# A growth of so much is worth a look at the connections.
GROWTH_BYTES = 4 << 20
# Now and then what HTTP/2 and TLS add is forgiven: this part, and so much a message and a second.
SWEEP_S = 10.0
ENVELOPE_SHARE, ENVELOPE_BYTES, IDLE_BYTES = 0.05, 128, 512
# Where `struct tcp_info` has the bytes received (linux/tcp.h, since 4.1).
_RECEIVED_AT, _TCP_INFO_BYTES = 128, 136
# Where descriptors ran out, so many are looked at one by one.
DESCRIPTORS_MAX = 1 << 16
_DISCARDED_BYTES = 1 << 16
_PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(slots=True)
class _Connection:
    """What is known of one connection: bytes of messages read, and their envelopes at most."""

    base: int = 0
    read: int = 0
    forgiven: float = 0.0
    holds_since_s: float = 0.0
    seen: bool = False


class Inflow:
    """Watches the connections to one port; `tell` hears of each that is shut, with its bytes."""

    def __init__(self, port: int, tell: Callable[[str, int], None]) -> None:
        self._port = port
        self._tell = tell
        self._known: dict[str, _Connection] = {}
        self._lock = threading.Lock()
        self._statm = -1
        self._over = False
        self._thread = threading.Thread(target=self._watch, name="inflow", daemon=True)

    def begin(self) -> None:
        """Start to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over = True

    def read(self, peer: str, size: int) -> None:
        """Note that a message was read; `peer` is the caller as gRPC writes it."""
        known = self._known.get(peer)
        if known is None:
            with self._lock:
                known = self._known.setdefault(peer, _Connection())
        known.read += size
        known.forgiven += size * ENVELOPE_SHARE + ENVELOPE_BYTES

    def shut(self, peer: str) -> bool:
        """End the connection of a peer; returns whether there is one."""
        with contextlib.suppress(OSError):
            return any(_shut(file, one) for file, one, _ in _connections(self._port) if one == peer)
        return False

    # -- on the thread -----------------------------------------------------------------------------

    def _watch(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._look_on()
        finally:
            os.close(self._statm)

    def _look_on(self) -> None:
        calm, next_sweep_s, quick_until_s = self._memory_bytes(), time.monotonic() + SWEEP_S, 0.0
        next_trim_s = trim_until_s = 0.0
        while not self._over:
            # An event that is waited for would cost several times as much.
            time.sleep(QUICK_S if time.monotonic() < quick_until_s else LOOK_S)
            now_s, memory = time.monotonic(), self._memory_bytes()
            calm = min(calm, memory)
            grown = memory - calm >= GROWTH_BYTES
            sweeps, quick = now_s >= next_sweep_s, now_s < quick_until_s
            if grown or quick:
                trim_until_s = now_s + TRIM_FOR_S
            if next_trim_s <= now_s < trim_until_s:
                next_trim_s = now_s + TRIM_S
                _trim()
            if not (sweeps or quick or grown):
                continue
            kept = 0
            with contextlib.suppress(OSError):
                kept = self.look(now_s)
            if kept >= GROWTH_BYTES:
                quick_until_s = now_s + QUICK_FOR_S
            elif not quick:
                calm = memory
            if sweeps:
                next_sweep_s = now_s + SWEEP_S
                self._forgive()

    def _memory_bytes(self) -> int:
        """Return the memory that this process has in use."""
        return int(os.pread(self._statm, 200, 0).split()[1]) * _PAGE

    def look(self, now_s: float) -> int:
        """Shut what holds too much for longest; returns the bytes that are held."""
        held: list[tuple[float, int, int, str]] = []
        for connection in self._known.values():
            connection.seen = False
        for file, peer, received in _connections(self._port):
            with self._lock:
                known = self._known.setdefault(peer, _Connection())
            known.seen = True
            unread = received - known.read - known.base
            if unread < UNREAD_BYTES_MIN:
                known.holds_since_s = now_s
                continue
            held.append((known.holds_since_s or now_s, unread, file, peer))
            known.holds_since_s = known.holds_since_s or now_s
        total = sum(unread for _, unread, _, _ in held)
        for _, unread, file, peer in sorted(held, key=lambda one: (one[0], -one[1])):
            if total <= UNREAD_BYTES_MAX:
                break
            if _shut(file, peer):
                total -= unread
                self._tell(peer, unread)
        return total

    def _forgive(self) -> None:
        """Count what messages are wrapped in as read, and forget connections that are gone."""
        for _, peer, received in _connections(self._port):
            if known := self._known.get(peer):
                surplus = received - known.read - known.base
                known.base += max(0, min(surplus, int(known.forgiven) + int(IDLE_BYTES * SWEEP_S)))
                known.forgiven = 0.0
        with self._lock:
            for peer in [peer for peer, known in self._known.items() if not known.seen]:
                del self._known[peer]


def _trim() -> None:
    """Give memory back that nobody uses; other C libraries than glibc do it by themselves."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _connections(port: int) -> list[tuple[int, str, int]]:
    """Return descriptor, peer and received bytes of the connections that this port accepted."""
    found = []
    for file in _descriptors():
        try:
            one = socket.socket(fileno=file)
        except OSError:
            continue
        try:
            if one.type == socket.SOCK_STREAM and one.getsockname()[1] == port:
                peer, info = one.getpeername(), _info(one)
                if len(info) >= _TCP_INFO_BYTES:
                    (received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
                    found.append((file, _written(one.family, peer), received))
        # It listens, is no connection of the internet's, or is gone meanwhile.
        except (OSError, IndexError, TypeError):
            pass
        finally:
            one.detach()
    return found


def _descriptors() -> Iterable[int]:
    """Return the descriptors that are open, or all that may be where none is left to ask by."""
    try:
        return map(int, os.listdir("/proc/self/fd"))
    except OSError:
        return range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], DESCRIPTORS_MAX))


def _info(one: socket.socket) -> bytes:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)


def _written(family: int, peer: tuple[str, int]) -> str:
    """Return an address as gRPC writes it."""
    if family == socket.AF_INET:
        return f"ipv4:{peer[0]}:{peer[1]}"
    if peer[0].startswith("::ffff:"):
        return f"ipv4:{peer[0].removeprefix('::ffff:')}:{peer[1]}"
    return f"ipv6:%5B{peer[0]}%5D:{peer[1]}"


def _shut(file: int, peer: str) -> bool:
    """End a connection, unless the descriptor is another one's by now."""
    try:
        own = os.dup(file)
    except OSError:
        # There is none left.
        own = file
    try:
        one = socket.socket(fileno=own)
    except OSError:
        if own != file:
            os.close(own)
        return False
    try:
        if _written(one.family, one.getpeername()) != peer:
            return False
        one.shutdown(socket.SHUT_RDWR)
        # What the kernel holds of it would still be read: it is thrown away unseen, unless the
        # descriptor may become another connection's meanwhile.
        one.setblocking(False)
        # It is shut also where the caller reset it meanwhile.
        with contextlib.suppress(OSError):
            while own != file and one.recv(_DISCARDED_BYTES, socket.MSG_TRUNC):
                pass
    except OSError:
        return False
    finally:
        if own == file:
            one.detach()
        one.close()
    return True
