"""What the service counts, for Prometheus. No label has a value that a client chooses."""

from dataclasses import dataclass
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class RunMetrics:
    """The counters of one run; see `Metrics`, whose labels they have."""

    running: Gauge
    waiting: Gauge
    queued_tokens: Gauge
    cache_bytes: Gauge
    queue_seconds: Histogram
    first_piece_seconds: Histogram


class Metrics:
    """The counters of one service, in a registry of their own.

    Counters are looked up by their labels once: a look-up takes as long as counting.
    """

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        run = ("run",)
        self.running = Gauge(
            "heedful_requests_running", "Requests that an engine computes", run, registry=own
        )
        self.waiting = Gauge(
            "heedful_requests_waiting", "Requests that wait for an engine", run, registry=own
        )
        self.queued_tokens = Gauge(
            "heedful_queued_tokens", "Tokens of the requests in the service", run, registry=own
        )
        self.cache_bytes = Gauge(
            "heedful_cache_bytes",
            "Most memory for keys and values of the requests in the service",
            run,
            registry=own,
        )
        requests = Counter(
            "heedful_requests", "Requests by run, verb and status", ("run", "verb", "status"), registry=own
        )
        self.requests_of = cache(lambda run, verb, status: requests.labels(run, verb, str(status)))
        self.refused = Counter("heedful_refused", "Refused requests by reason", ("reason",), registry=own)
        request_seconds = Histogram(
            "heedful_request_seconds",
            "From the body to the answer",
            ("run", "verb"),
            buckets=SECONDS,
            registry=own,
        )
        self.request_seconds_of = cache(request_seconds.labels)
        self.queue_seconds = Histogram(
            "heedful_queue_seconds", "From the body to the first step", run, buckets=SECONDS, registry=own
        )
        self.first_piece_seconds = Histogram(
            "heedful_time_to_first_token_seconds", "Of streams", run, buckets=SECONDS, registry=own
        )
        self.batch_rows = Histogram(
            "heedful_batch_rows", "Requests that begin together", run, buckets=ROWS, registry=own
        )
        tokens = Counter("heedful_tokens", "Tokens by kind", ("kind",), registry=own)
        self.tokens_read, self.tokens_written = tokens.labels("read"), tokens.labels("written")
        self.restarts = Counter("heedful_engine_restarts", "Engines that were replaced", run, registry=own)

    def of(self, run: str) -> RunMetrics:
        """Return the counters of a run."""
        return RunMetrics(
            self.running.labels(run),
            self.waiting.labels(run),
            self.queued_tokens.labels(run),
            self.cache_bytes.labels(run),
            self.queue_seconds.labels(run),
            self.first_piece_seconds.labels(run),
        )
