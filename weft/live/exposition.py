"""Metrics for Prometheus: how long cores take for events, and series that a role's facts feed.

Series of nodes and applications that are gone go away (`drop`), and no family grows without bound.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from weft.errors import WeftError

# Fine around 5 ms, the bound that heartbeats are held to.
LATENCY_BUCKETS_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.0025, 0.003, 0.0035, 0.004,
    0.0045, 0.005, 0.006, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
SERIES_MAX = 2_000  # of one family; more are counted in weft_series_refused_total

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Counts by bucket; plain lists, because it is fed for every event."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        seen, rows = 0, []
        for bound, count in zip([*map(repr, self.bounds), "+Inf"], self.counts, strict=True):
            seen += count
            rows.append((bound, float(seen)))
        return rows

    def quantile(self, q: float) -> float:
        """The upper bound of the bucket that holds the quantile; infinite beyond the last."""
        rows = self.buckets()
        rank = q * rows[-1][1]
        return next((float(bound) for bound, seen in rows if seen >= rank), float("inf"))


class Exposition(Collector):
    """All series of one process. Fed on the loop's thread, read on the endpoint's."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._took: dict[str, Histogram] = {}
        self._waited = Histogram()
        self._families: dict[str, tuple[type[Metric], str, dict[Labels, float]]] = {}
        self._refused = 0

    def meter(self, event: str, took_s: float, waited_s: float) -> None:
        """One event was handled by a core."""
        histogram = self._took.get(event)
        if histogram is None:
            histogram = self._took[event] = Histogram()
        histogram.observe(took_s)
        self._waited.observe(waited_s)

    def took(self, event: str) -> Histogram:
        """The latency of one type of event."""
        return self._took.setdefault(event, Histogram())

    def gauge(self, name: str, text: str, value: float, labels: Labels = ()) -> None:
        """Set a gauge."""
        self._set(GaugeMetricFamily, name, text, labels, value, add=False)

    def add(self, name: str, text: str, amount: float = 1.0, labels: Labels = ()) -> None:
        """Add to a gauge."""
        self._set(GaugeMetricFamily, name, text, labels, amount, add=True)

    def count(self, name: str, text: str, amount: float = 1.0, labels: Labels = ()) -> None:
        """Add to a counter; `_total` is appended to its name."""
        self._set(CounterMetricFamily, name, text, labels, amount, add=True)

    def _set(
        self, kind: type[Metric], name: str, text: str, labels: Labels, value: float, *, add: bool
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
        for _, _, series in self._families.values():
            for labels in [known for known in series if pair in known]:
                del series[labels]

    def collect(self) -> Iterator[Metric]:
        """What Prometheus reads."""
        took = HistogramMetricFamily(
            "weft_handle_seconds", "Time that a core took for an event, s", labels=["event"]
        )
        for event, histogram in list(self._took.items()):
            took.add_metric([event], histogram.buckets(), histogram.total)
        yield took
        waited = HistogramMetricFamily(
            "weft_mailbox_wait_seconds", "Time that events waited for their core, s"
        )
        waited.add_metric([], self._waited.buckets(), self._waited.total)
        yield waited
        yield CounterMetricFamily(
            "weft_series_refused", "Series that were not kept, as their family is too large",
            value=self._refused,
        )  # fmt: skip
        for name, (kind, text, series) in list(self._families.items()):
            yield from _family(kind, name, text, list(series.items()))

    def serve(self, host: str, port: int) -> str:
        """Serve `/metrics`; returns host:port. Raises WeftError when the port is in use."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            reason = error.strerror or str(error)
            raise WeftError(f"cannot serve metrics on {host}:{port}: {reason.lower()}") from None
        return f"{host}:{server.server_port}"


def _family(
    kind: type[Metric], name: str, text: str, series: Iterable[tuple[Labels, float]]
) -> Iterator[Metric]:
    """One family; its series have the same label names."""
    rows = list(series)
    if not rows:
        return
    metric = kind(name, text, labels=[key for key, _ in rows[0][0]])  # type: ignore[call-arg]
    for labels, value in rows:
        metric.add_metric([text for _, text in labels], value)  # type: ignore[attr-defined]
    yield metric
