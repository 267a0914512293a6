"""Starting masters on a node: in an AM host over its stream, or each as a process of its own."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nm.process.host import ProcessHost
from weft.model.ids import AttemptId, ContainerId, NodeId
from weft.protocol.effects import ProcessEnded
from weft.protocol.messages import MasterLaunch, Outcome
from weft.runtime.role_settings import NmSettings
from weft.wire.codec import MasterEnded
from weft.wire.connections import host_stream
from weft.wire.outbound_queues import Stream

OnEnded = Callable[[Sequence[ProcessEnded]], None]
# The token is empty where there is none.
TokenOf = Callable[[AttemptId], bytes]
# A folder below the node's work folder.
TOKENS_FOLDER = ".tokens"


# So long, in wall clock time, a master waits for an AM host that is not there.
HOST_PATIENCE_S = 20.0


class HostedMasters:
    """Masters in an AM host. The stream is their lifeline: when it breaks, they have ended.

    What is to start while there is no host waits a little, as the host may be about to come back.
    """

    def __init__(
        self,
        address: str,
        on_ended: OnEnded,
        on_state: Callable[[bool, str], None],
        tokens: TokenOf = lambda attempt: b"",
    ) -> None:
        self._tokens = tokens
        self._on_ended = on_ended
        self._on_state = on_state
        self._running: set[ContainerId] = set()
        self._waiting_since_s: dict[ContainerId, tuple[MasterLaunch, float]] = {}
        self.stream: Stream = host_stream(address, self._ended, self._state)

    def start(self, item: MasterLaunch, node: NodeId = "") -> None:
        """Start a master; its end follows in any case."""
        if self.stream.up:
            self._running.add(item.container_id)
            token = self._tokens(item.attempt_id)
            self.stream.send([((item,), (), (token,) if token else ())])
        else:
            self._waiting_since_s[item.container_id] = (item, time.monotonic())

    def stop(self, container: ContainerId) -> bool:
        """Kill a master; return False when there is none in this container."""
        if self._waiting_since_s.pop(container, None) is not None:
            self._on_ended([ProcessEnded(container, Outcome.KILLED, 1, "killed before it started")])
            return True
        if container not in self._running:
            return False
        self.stream.send([((), (container,), ())])
        return True

    def _ended(self, batch: list[MasterEnded]) -> None:
        for container, outcome, exit_code, message in batch:
            if container in self._running:
                self._running.discard(container)
                self._on_ended([ProcessEnded(container, outcome, exit_code, message)])

    def _state(self, up: bool, reason: str) -> None:
        self._on_state(up, reason)
        if up:
            waiting, self._waiting_since_s = self._waiting_since_s, {}
            for item, _ in waiting.values():
                self.start(item)
            return
        now = time.monotonic()
        late = [
            c for c, (_, since) in self._waiting_since_s.items() if now - since > HOST_PATIENCE_S
        ]
        for container in late:
            del self._waiting_since_s[container]
        lost, self._running = [*self._running, *late], set()
        for container in lost:
            message = f"the AM host is gone: {reason}"
            self._on_ended([ProcessEnded(container, Outcome.FAILED, 1, message)])


class ProcessMasters:
    """Masters as processes, run like any other process of a container."""

    def __init__(
        self, host: ProcessHost, settings: NmSettings, tokens: TokenOf = lambda attempt: b""
    ) -> None:
        self._host = host
        self._settings = settings
        self._tokens = tokens

    def start(self, item: MasterLaunch, node: NodeId) -> None:
        """Start `python -m am` for the attempt; its end follows."""
        settings = self._settings
        # masters run in folders of their own, so a path from here says nothing there
        files = {"ca": settings.tls_ca, "cert": settings.tls_cert, "key": settings.tls_key}
        identity = [f"--tls-{what}={file.absolute()}" for what, file in files.items() if file]
        command = [
            sys.executable,
            "-m",
            "am",
            f"--attempt={item.attempt_id}",
            f"--manager={settings.manager}",
            f"--epoch-s={settings.epoch_s!r}",
            f"--time-scale={settings.time_scale!r}",
            f"--seed={settings.seed}",
            "--metrics-port=-1",
            *(() if settings.recovery else (f"--die-with={os.getpid()}",)),
            *(() if settings.tape is None else (f"--tape={settings.tape.absolute()}",)),
            *identity,
            *settings.master_args,
        ]
        if token := self._tokens(item.attempt_id):
            command.append(f"--token-file={self._write(item.attempt_id, token)}")
        self._host.run(item.container_id, command, {}, item=item, node_id=node, own=True)

    def _write(self, attempt: AttemptId, token: bytes) -> Path:
        """Write a token where only this user reads it; the master removes it."""
        folder = self._host.root / TOKENS_FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / str(attempt)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(token)
        return path

    def stop(self, container: ContainerId) -> bool:
        """Return True: the process host stops it like any other container."""
        return False
