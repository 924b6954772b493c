"""What the proxy counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)
_LAG = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1)


class Metrics:
    """One proxy's metrics, in a registry of its own."""

    def __init__(self) -> None:
        """Start at nothing."""
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "gyre_proxy_requests", "Requests by protocol and HTTP status", ("protocol", "status"), registry=registry
        )
        self.refusals = Counter("gyre_proxy_refusals", "Requests refused, by reason", ("kind",), registry=registry)
        self.calls = Counter(
            "gyre_proxy_calls", "Calls by the state in which they ended", ("state",), registry=registry
        )
        self.attached = Counter(
            "gyre_proxy_retries", "Requests that repeat a call, running or finished", ("call",), registry=registry
        )
        self.deliveries = Counter("gyre_proxy_deliveries", "What became of replies", ("outcome",), registry=registry)
        self.input_tokens = Counter("gyre_proxy_input_tokens", "Tokens sent to engines as input", registry=registry)
        self.reused_tokens = Counter(
            "gyre_proxy_reused_tokens", "Input tokens that are recorded ones of earlier calls", registry=registry
        )
        self.cached_tokens = Counter(
            "gyre_proxy_cached_tokens", "Input tokens in an engine's prefix cache", registry=registry
        )
        self.output_tokens = Counter("gyre_proxy_output_tokens", "Tokens sampled", registry=registry)
        self.branches = Counter(
            "gyre_proxy_branches", "Prompts that go on from no newest call, by reason", ("reason",), registry=registry
        )
        self.moves = Counter(
            "gyre_proxy_moves", "Replies that went on on another engine", ("engine",), registry=registry
        )
        self.farewells = Counter("gyre_proxy_farewells", "Replies that told a harness to stop", registry=registry)
        self.unrecorded = Counter("gyre_proxy_unrecorded", "Calls whose record could not be written", registry=registry)
        self.render = Histogram("gyre_proxy_render_seconds", "Request to tokens", registry=registry, buckets=_SECONDS)
        self.queue = Histogram(
            "gyre_proxy_queue_seconds", "Prompt to a place on an engine", registry=registry, buckets=_SECONDS
        )
        self.first_token = Histogram(
            "gyre_proxy_first_token_seconds", "Request to first token, waiting for engines included",
            registry=registry, buckets=_SECONDS,
        )  # fmt: skip
        self.record = Histogram("gyre_proxy_record_seconds", "Writing a call's record", registry=registry, buckets=_LAG)
        self.lag = Histogram(
            "gyre_proxy_chunk_lag_seconds", "Engine's chunk to client's socket", registry=registry, buckets=_LAG
        )

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Report a value that is asked for when it is read."""
        Gauge(name, what, registry=self._registry).set_function(value)

    def collect_from(self, collector: Collector) -> None:
        """Report what a collector of somebody else's has, too."""
        self._registry.register(collector)

    def value(self, sample: str) -> float:
        """Return what stands at a sample now, such as "gyre_proxy_output_tokens_total"; 0 where nothing does."""
        return self._registry.get_sample_value(sample) or 0.0

    def text(self) -> bytes:
        """Return all in Prometheus's text format."""
        return generate_latest(self._registry)
