"""Metrics for Prometheus: how long cores take for events, and series that a role's facts feed.

Series of nodes and applications that are gone go away (`drop`, `show`), and no family grows without
bound. What is a state and not an event is looked up when somebody asks (`sample`).
"""

import asyncio
import ssl
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from weft.runtime.scrape import Labels, Lines, serve

# Fine around 5 ms, the bound that heartbeats are held to.
LATENCY_BUCKETS_S = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.00075,
    0.001,
    0.0015,
    0.002,
    0.0025,
    0.003,
    0.0035,
    0.004,
    0.0045,
    0.005,
    0.006,
    0.0075,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
)
# What tasks, jobs and plans take, on the cluster's clock.
DURATION_BUCKETS_S = (
    0.01,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    14400.0,
)
# More series of one family are counted in weft_series_refused_total.
SERIES_MAX = 10_000
# When the loop is this late, a scrape gives what was known before.
SAMPLE_S = 2.0
LAG_EVERY_S = 0.25

# Called on the loop's thread: notes what the books say and returns how to make series of it, which
# is called on the endpoint's thread.
Sampler = Callable[[], Callable[[], None]]


class Histogram:
    """Counts by bucket; plain lists, because it is fed for every event."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Record `times` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts, as Prometheus wants them."""
        seen, rows = 0, []
        for bound, count in zip([*map(repr, self.bounds), "+Inf"], self.counts, strict=True):
            seen += count
            rows.append((bound, float(seen)))
        return rows


class Series:
    """One series of a counter or gauge, for what counts each task."""

    __slots__ = ("_all", "_labels")

    def __init__(self, series: dict[Labels, float], labels: Labels) -> None:
        self._all = series
        self._labels = labels

    def add(self, amount: float = 1.0) -> None:
        """Add to it."""
        self._all[self._labels] = self._all.get(self._labels, 0.0) + amount


class Exposition:
    """All series of one process. Fed on the loop's thread, read on the endpoint's."""

    def __init__(self) -> None:
        # This registry has what the system knows of the process.
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._lines = Lines()
        self._took: dict[str, Histogram] = {}
        self._waited = Histogram()
        self._families: dict[str, tuple[str, str, dict[Labels, float]]] = {}
        self._histograms: dict[str, tuple[str, dict[Labels, Histogram]]] = {}
        self._refused = 0
        self._samplers: list[Sampler] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- feeding -----------------------------------------------------------------------------------

    def meter(self, event: str, took_s: float, waited_s: float, times: int = 1) -> None:
        """Count events of a type that were handled by a core, each in `took_s`."""
        histogram = self._took.get(event)
        if histogram is None:
            histogram = self._took[event] = Histogram()
        histogram.observe(took_s, times)
        self._waited.observe(waited_s, times)

    def took(self, event: str) -> Histogram:
        """Return the latency of one type of event."""
        return self._took.setdefault(event, Histogram())

    def called(self, method: str, code: str, took_s: float) -> None:
        """Count a gRPC call that this process served; a stream counts when it ends."""
        labels = (("method", method), ("code", code))
        self.count("weft_grpc_calls", "gRPC calls served, by method and status code", 1, labels)
        text = "Time that gRPC calls took, s; of streams: how long they were open"
        self.histogram(
            "weft_grpc_call_seconds", text, (("method", method),), DURATION_BUCKETS_S
        ).observe(took_s)

    def gauge(self, name: str, text: str, value: float, labels: Labels = ()) -> None:
        """Set a gauge."""
        self._set("gauge", name, text, labels, value, add=False)

    def add(self, name: str, text: str, amount: float = 1.0, labels: Labels = ()) -> None:
        """Add to a gauge."""
        self._set("gauge", name, text, labels, amount, add=True)

    def count(self, name: str, text: str, amount: float = 1.0, labels: Labels = ()) -> None:
        """Add to a counter; `_total` is appended to its name."""
        self._set("counter", name, text, labels, amount, add=True)

    def counter(self, name: str, text: str, labels: Labels = ()) -> Series:
        """Return a counter's series, which begins at 0; of few and lasting labels."""
        self.count(name, text, 0, labels)
        return Series(self._families[name][2], labels)

    def summed(self, name: str, text: str, labels: Labels = ()) -> Series:
        """Return a gauge's series to be added to, as `counter` does."""
        self.add(name, text, 0, labels)
        return Series(self._families[name][2], labels)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels = (),
        bounds: tuple[float, ...] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        """Return the histogram with these labels, made on first use."""
        series = self._histograms.setdefault(name, (text, {}))[1]
        found = series.get(labels)
        if found is None:
            found = Histogram(bounds)
            if len(series) >= SERIES_MAX // len(bounds):
                self._refused += 1
            else:
                series[labels] = found
        return found

    def show(self, name: str, text: str, series: Mapping[Labels, float]) -> None:
        """Replace all series of a gauge, so that those of what is gone go away."""
        kept = dict(list(series.items())[:SERIES_MAX])
        self._refused += len(series) - len(kept)
        self._families[name] = ("gauge", text, kept)

    def _set(
        self, kind: str, name: str, text: str, labels: Labels, value: float, *, add: bool
    ) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = (kind, text, {})
        series = family[2]
        if add:
            value += series.get(labels, 0.0)
        if labels not in series and len(series) >= SERIES_MAX:
            self._refused += 1
            return
        series[labels] = value

    def drop(self, label: str, value: str) -> None:
        """Forget every series of something that is gone, as ("node", "n3")."""
        pair = (label, value)
        for _, _, series in list(self._families.values()):
            for labels in [known for known in series if pair in known]:
                del series[labels]

    # -- reading -----------------------------------------------------------------------------------

    def sample(self, sampler: Sampler) -> None:
        """Ask for what the books say at every scrape, instead of noting every change of it."""
        self._samplers.append(sampler)

    async def measure_lag(self) -> None:
        """Measure how late the loop is with its timers, until cancelled."""
        loop = asyncio.get_running_loop()
        lag = self.histogram(
            "weft_event_loop_lag_seconds", "How late the event loop calls its timers, s"
        )
        while True:
            due_s = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            lag.observe(max(0.0, loop.time() - due_s))

    def _sample(self) -> None:
        """Let the loop's thread note the books, and make series of the notes on this one."""
        loop, done = self._loop, threading.Event()
        noted: list[Callable[[], None]] = []
        if not self._samplers or loop is None or loop.is_closed():
            return

        def look() -> None:
            try:
                noted.extend(sampler() for sampler in self._samplers)
            finally:
                done.set()

        try:
            loop.call_soon_threadsafe(look)
        except RuntimeError:
            # The loop was closed meanwhile.
            return
        if done.wait(SAMPLE_S):
            for publish in noted:
                publish()

    def text(self) -> bytes:
        """Return what Prometheus reads, in its text format; not for the loop's thread."""
        self._sample()
        write = self._lines
        events = [((("event", event),), one) for event, one in list(self._took.items())]
        lines = _histograms(
            write, "weft_handle_seconds", "Time that a core took for an event, s", events
        )
        lines += _histograms(
            write,
            "weft_mailbox_wait_seconds",
            "Time that events waited for their core, s",
            [((), self._waited)],
        )
        text = "Series that were not kept, as their family is too large"
        lines += write.family("counter", "weft_series_refused", text, [((), float(self._refused))])
        for name, (text, histograms) in list(self._histograms.items()):
            lines += _histograms(write, name, text, list(histograms.items()))
        for name, (kind, text, series) in list(self._families.items()):
            lines += write.family(kind, name, text, list(series.items()))
        return ("\n".join(lines) + "\n").encode() + generate_latest(self._process)

    def serve(
        self,
        host: str,
        port: int,
        secured: ssl.SSLContext | None = None,
        allowed_hosts: Sequence[str] = (),
    ) -> str:
        """Serve `/metrics`, `secured` by TLS, as `scrape.serve` does; returns host:port.

        Raises WeftError when the port is in use. Call it on the loop's thread if anything is to be
        sampled.
        """
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        return serve(host, port, self.text, secured, allowed_hosts)


def _histograms(
    write: Lines, name: str, text: str, rows: Iterable[tuple[Labels, Histogram]]
) -> list[str]:
    series = [(labels, found.buckets(), found.total) for labels, found in rows]
    return write.histogram(name, text, series)


def base_unit(resource: str) -> tuple[Labels, float]:
    """Return labels of a resource's series and what its amounts are multiplied by.

    As in kube-state-metrics: `vcores` is ("cpu", "cores"), `memory_mb` ("memory", "bytes", 2^20).
    Other types keep their name and have no unit that is known here.
    """
    if resource == "vcores":
        return (("resource", "cpu"), ("unit", "cores")), 1.0
    for suffix, unit, factor in (
        ("_mb", "bytes", float(1 << 20)),
        ("_gb", "bytes", float(1 << 30)),
        ("_mbps", "mbps", 1.0),
    ):
        if resource.endswith(suffix):
            return (("resource", resource.removesuffix(suffix)), ("unit", unit)), factor
    return (("resource", resource), ("unit", "units")), 1.0
