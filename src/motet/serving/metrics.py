"""Counters of a server, in the format of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server. `model` is a label of those that belong to a model; "" for unknown ones."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "motet_requests", "Requests by status.", ("model", "status"), registry=registry)
        self.seconds = Histogram(
            "motet_request_seconds", "Time from a request's headers to its response.", ("model",),
            registry=registry, buckets=_SECONDS)
        self.rows = Histogram(
            "motet_batch_rows", "Rows of a call; 1 for models without a batch.", ("model",),
            registry=registry, buckets=_ROWS)
        self.joined = Histogram(
            "motet_batch_requests", "Requests that one call answered.", ("model",), registry=registry, buckets=_ROWS)
        self.queue = Gauge("motet_queue_length", "Requests that wait for a call.", ("model",), registry=registry)
        self.in_flight = Gauge("motet_requests_in_flight", "Requests that are read, queued or computed.",
                               registry=registry)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
