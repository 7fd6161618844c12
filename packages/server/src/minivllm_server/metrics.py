"""What the server measures, for Prometheus, under the names that dashboards of such engines know."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from minivllm_runtime.engine.async_engine import AsyncEngine

PREFIX = "minivllm:"
LABELS = ("model_name",)

_TTFT_BUCKETS_S = (
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    30.0,
    60.0,
)
_ITL_BUCKETS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
)
_LATENCY_BUCKETS_S = (
    0.01,
    0.05,
    0.1,
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    20.0,
    40.0,
    60.0,
    120.0,
    300.0,
)

FINISH_REASONS = ("stop", "length", "abort", "error")


class ServerMetrics:
    """Histograms and counters of requests, and the engine's gauges as they are when somebody asks.

    Args:
        engine: Whose gauges are shown.
        model_name: Label of everything.
        shared_folder: Where several HTTP processes add their measurements up; prometheus_client writes there.

    Attributes:
        registry: Of this server alone; `prometheus_client.generate_latest` renders what `collected` gives.
    """

    def __init__(self, engine: AsyncEngine, model_name: str, shared_folder: str | None = None) -> None:
        # Else the library adds a gauge with the time of creation to each; its switch is one for the whole process.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there
        self.registry = CollectorRegistry()
        self._engine = engine
        self._engine_collector = _EngineCollector(engine, model_name)
        self._shared_folder = shared_folder
        if shared_folder is None:
            self.registry.register(self._engine_collector)
        self._model_name = model_name
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "From a request to its first token.", _TTFT_BUCKETS_S
        )
        self._itl = self._histogram(
            "inter_token_latency_seconds", "Between two tokens of a choice.", _ITL_BUCKETS_S
        )
        self._latency = self._histogram(
            "e2e_request_latency_seconds", "From a request to its last token.", _LATENCY_BUCKETS_S
        )
        queue_time = self._histogram(
            "request_queue_time_seconds", "From the queue to the first step.", _LATENCY_BUCKETS_S
        )
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self._generation_tokens = self._counter("generation_tokens", "Generated tokens.")
        success = Counter(
            f"{PREFIX}request_success",
            "Choices that ended, by reason.",
            (*LABELS, "finished_reason"),
            registry=self.registry,
        )
        self._ended = {reason: success.labels(model_name, reason) for reason in FINISH_REASONS}
        engine.observe_queue_times(queue_time.observe)

    async def collected(self) -> CollectorRegistry:
        """What a scrape sees: this process's registry, or the sum of all HTTP processes."""
        if self._shared_folder is None:
            return self.registry
        # Whichever process answers the next scrape, the engine's counters must not be behind these.
        await self._engine.ask_stats()
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._shared_folder)  # type: ignore[no-untyped-call]  # untyped there
        registry.register(self._engine_collector)
        return registry

    def count_prompt(self, num_tokens: int) -> None:
        """The tokens of all prompts of a request that was accepted."""
        self._prompt_tokens.inc(num_tokens)

    def observe_first_token(self, seconds: float) -> None:
        """A choice has its first token, so long after the request came."""
        self._ttft.observe(seconds)

    def observe_tokens(self, num_tokens: int, seconds: float) -> None:
        """A choice that has a token already gets more, so long after the last one: an equal part for each."""
        for _ in range(num_tokens):
            self._itl.observe(seconds / num_tokens)

    def count_generated(self, num_tokens: int) -> None:
        """Tokens that were generated."""
        self._generation_tokens.inc(num_tokens)

    def observe_request(self, seconds: float) -> None:
        """A request was answered to its end, so long after it came."""
        self._latency.observe(seconds)

    def count_end(self, reason: str) -> None:
        """A choice ended for one of `FINISH_REASONS`."""
        self._ended[reason].inc()

    def _histogram(self, name: str, help_text: str, buckets_s: Sequence[float]) -> Histogram:
        histogram = Histogram(PREFIX + name, help_text, LABELS, buckets=buckets_s, registry=self.registry)
        return histogram.labels(self._model_name)

    def _counter(self, name: str, help_text: str) -> Counter:
        return Counter(PREFIX + name, help_text, LABELS, registry=self.registry).labels(self._model_name)


class _EngineCollector(Collector):
    """The engine's own numbers, read when they are asked for."""

    def __init__(self, engine: AsyncEngine, model_name: str) -> None:
        self._engine = engine
        self._labels = (model_name,)

    def describe(self) -> Iterable[Metric]:
        """Nothing is known beforehand; asking the engine is cheap."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yields gauges and counters as of the engine's last step."""
        stats = self._engine.stats()
        yield self._gauge("num_requests_running", "Requests that hold KV blocks.", stats.num_running)
        yield self._gauge("num_requests_waiting", "Requests in the queue.", stats.num_waiting)
        yield self._gauge(
            "kv_cache_usage_perc",
            "Used share of the KV blocks; 1 is all.",
            stats.num_blocks_in_use / stats.num_blocks,
        )
        for name, help_text, value in (
            (
                "prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache.",
                stats.prefix_queries_tokens,
            ),
            ("prefix_cache_hits", "Prompt tokens found there.", stats.prefix_hits_tokens),
            ("num_preemptions", "Times a running request lost its blocks.", stats.num_preemptions),
            ("engine_steps", "Steps of the engine.", stats.num_steps),
        ):
            yield self._counter(name, help_text, value)

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(PREFIX + name, help_text, labels=LABELS)
        gauge.add_metric(self._labels, value)
        return gauge

    def _counter(self, name: str, help_text: str, value: int) -> Metric:
        counter = CounterMetricFamily(PREFIX + name, help_text, labels=LABELS)
        counter.add_metric(self._labels, value)
        return counter
