"""What every role's process does alike: start, say that it is ready, end in order."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from weft.model.errors import InputError, WeftError
from weft.protocol.facts import Fact, RunFact, facts_of
from weft.runtime import bind_check as exposure
from weft.runtime import log
from weft.runtime.clock import Clock
from weft.runtime.descriptors import LOOK_S, Descriptors, in_use
from weft.runtime.exposition import Exposition
from weft.runtime.factlines import EventLog
from weft.runtime.settings import ProcessSettings, TapedSettings, fail
from weft.runtime.tape import Tape
from weft.wire import tls

SECURING_OPTIONS = {
    "web": "--https with --tls-ca, --tls-cert and --tls-key",
    # YARN's own wire has no TLS here.
    "hadoop": "it a network of its own",
}
# Services of these roles ask for a certificate, where there are any.
GRPC_ROLES = ("rm", "nm", "am", "router")
START_TIMEOUT_S, START_POLL_S = 180.0, 0.01
EVENT_LOG_FLUSH_S = 0.5
# The first is of objects made and not freed, the others of young and middle-aged collections.
GC_THRESHOLDS = (10_000, 10, 10)


class Process:
    """One process of a cluster: its clock, logger, metrics, event log, and when to end."""

    def __init__(self, settings: ProcessSettings) -> None:
        self.settings = settings
        files = settings.tls_ca, settings.tls_cert, settings.tls_key
        identity = tls.read(*files, serves=True)
        tls.use(identity)
        grpc_only = settings.role in GRPC_ROLES
        open_to_all = exposure.check(
            settings.host,
            knows=identity is not None and (grpc_only or getattr(settings, "https", False)),
            insecure=settings.insecure,
            how=SECURING_OPTIONS.get(settings.role, "--tls-ca, --tls-cert and --tls-key"),
        )
        self.clock = Clock(settings.epoch_s, settings.time_scale)
        self.log = log.configure(settings.role, settings.log_json, settings.log_level)
        if open_to_all:
            self.log.warning("any client that reaches this address is let in", host=settings.host)
        self.exposition = Exposition()
        self.metrics_address = ""
        self._events = EventLog(settings.events) if settings.events is not None else None
        self.tape: Tape | None = None
        self._ended = asyncio.Event()
        # A signal told the process to end.
        self.told = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None
        # These are called when certificates were renewed.
        self.on_renewed: list[Callable[[], None]] = []

    def record(self, name: str, **says: Any) -> Tape | None:
        """Begin the tape, where one is wanted; raises WeftError for a folder that takes none."""
        settings = self.settings
        if isinstance(settings, TapedSettings) and settings.tape is not None:
            said = {
                "role": settings.role,
                "epoch_s": settings.epoch_s,
                "time_scale": settings.time_scale,
                **says,
            }
            limit = int(settings.tape_mb_max * 1e6)
            self.tape = Tape(settings.tape, name, said, limit, self.log.warning)
        return self.tape

    def note(self, fact: Fact | RunFact, now: float) -> None:
        """Log a fact and write it into the event log, that of each container by itself."""
        if self._events is not None:
            for one in facts_of(fact):
                self._events.write(one, now)
        log.log_fact(self.log, fact, now)

    def flush(self) -> None:
        """Call before others are told: what is in the event log then survives this process."""
        if self._events is not None:
            self._events.flush()

    def link_log(self, who: str, address: str) -> Callable[[bool, str], None]:
        """Return what to call when a connection came up or failed: it logs the changes."""
        last: bool | None = None

        def changed(up: bool, reason: str) -> None:
            nonlocal last
            if up is last:
                return
            last = up
            if up:
                self.log.info(f"connected to the {who}", address=address)
            else:
                self.log.warning(f"no {who}", address=address, reason=reason)

        return changed

    def tell_refused(self, peer: str, message: str, field: str, problem: str, before: int) -> None:
        """Log one line on a refused message; `before`: similar ones that were not logged."""
        more = {"before": before} if before else {}
        self.log.warning(
            "refused a message", peer=peer, message=message, field=field, problem=problem, **more
        )

    def count_refused(self, message: str, field: str) -> None:
        """Count a message that was refused."""
        text = "Messages refused because they break a rule, by type and field"
        labels = (("message", message), ("field", field))
        self.exposition.count("weft_messages_refused", text, 1, labels)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a task for as long as the process lives; its failure ends the process."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """End the process; with an error, with exit code 1."""
        if self._error is None:
            self._error = error
        self._ended.set()

    def serve_metrics(self) -> None:
        """Start the Prometheus endpoint, unless it is switched off."""
        if self.settings.metrics_port >= 0:
            secured = None
            if self.settings.metrics_tls:
                files = self.tls_files("--metrics-tls")
                secured = tls.server_context(files, ssl.CERT_REQUIRED)
                self.on_renewed.append(partial(tls.load, files, secured))
            self.metrics_address = self.exposition.serve(
                self.settings.host,
                self.settings.metrics_port,
                secured,
                self.settings.allowed_hosts,
            )
            self.spawn(self.exposition.measure_lag())

    def tls_files(self, why: str) -> tuple[Path, Path, Path]:
        """Return authority, certificate and key; raises InputError if missing for `why`."""
        settings = self.settings
        if not (settings.tls_ca and settings.tls_cert and settings.tls_key):
            raise InputError(why, f"takes {', '.join(tls.FLAGS)}")
        return settings.tls_ca, settings.tls_cert, settings.tls_key

    def ready(self, **what: Any) -> None:
        """Say in one line of JSON that the process serves, and where; it has all that it keeps.

        From then on it ends in order when it is told to.
        """
        self._heed_signals()
        quiet_collector()
        line = json.dumps(
            {"ready": self.settings.role, "pid": os.getpid(), "metrics": self.metrics_address}
            | what
        )
        try:
            with contextlib.suppress(BrokenPipeError):
                print(line, flush=True)
        except OSError as error:
            # What is still buffered for it must go somewhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise WeftError(f"standard output: {error.strerror}") from None
        if self.settings.ready_file is not None:
            fresh = self.settings.ready_file.with_suffix(".new")
            fresh.write_text(line + "\n", "utf-8")
            fresh.replace(self.settings.ready_file)

    async def until_end(self) -> None:
        """Wait for SIGTERM, SIGINT or `end`; raises what a task raised."""
        self._heed_signals()
        if self._events is not None or self.tape is not None:
            self.spawn(self._flush())
        if tls.current() is not None:
            self.spawn(self._follow_identity())
        self.spawn(self._count_descriptors())
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    async def _count_descriptors(self) -> None:
        """Tell when this process may open hardly a file or connection more."""
        seen = Descriptors()
        self.exposition.sample(lambda: self._show_descriptors)
        while True:
            used, most = in_use()
            said = seen.judge(used, most)
            if said == "short":
                self.log.warning(
                    "descriptors run out: soon nobody can connect and no file be opened",
                    open=used,
                    most=most,
                )
            elif said:
                self.log.info("there are enough descriptors again", open=used, most=most)
            await asyncio.sleep(LOOK_S)

    def _show_descriptors(self) -> None:
        used, most = in_use()
        self.exposition.gauge("weft_descriptors_open", "Open files and connections", used)
        self.exposition.gauge("weft_descriptors_max", "Of so many that it may have", most)

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._tell)

    def _tell(self) -> None:
        self.told = True
        self.end()

    async def close(self) -> None:
        """Cancel what `spawn` started and close the event log."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._events is not None:
            self._events.close()
        if self.tape is not None:
            self.tape.close()

    async def _follow_identity(self) -> None:
        """Say when renewed certificates are taken up, and tell who keeps a copy."""
        known = tls.current()
        while True:
            await asyncio.sleep(tls.LOOK_S)
            if (now := tls.current()) != known:
                known = now
                self.log.info("renewed certificates are taken up")
                for tell in self.on_renewed:
                    tell()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(EVENT_LOG_FLUSH_S)
            if self._events is not None:
                self._events.flush()
            if self.tape is not None:
                self.tape.flush()


def quiet_collector() -> None:
    """Have the cyclic garbage collector leave alone what is here, and look less often from now on.

    A process keeps its modules and what it began with until it ends: to walk these 150,000 objects
    again and again was most of what collecting cost, a sixth of all CPU time of short tasks, and a
    quarter of that of the start (`gc.disable` in each `__main__`). Few cycles are made, 70 objects
    per thousand tasks, so memory stays flat.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def found(place: str) -> str:
    """Return an address as it was told, or from the file that `@FILE` names.

    The process at that address writes the file. Of several with commas between, each. Waits for the
    file: processes of one host may start at once. Raises WeftError after `START_TIMEOUT_S`.
    """
    if "," in place:
        return ",".join(found(one.strip()) for one in place.split(","))
    if not place.startswith("@"):
        return place
    path, until = Path(place[1:]), time.monotonic() + START_TIMEOUT_S
    while True:
        with contextlib.suppress(FileNotFoundError):
            return str(json.loads(path.read_text("utf-8"))["address"])
        if time.monotonic() > until:
            raise WeftError(
                f"{path} does not say within {START_TIMEOUT_S:.0f} s where its process serves"
            )
        time.sleep(START_POLL_S)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a role's main coroutine on uvloop, if there is one; errors are one clear line."""

    async def guarded() -> None:
        await main()

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(guarded())
    except WeftError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(130)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.environ.get("WEFT_UVLOOP", "1") == "0":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
