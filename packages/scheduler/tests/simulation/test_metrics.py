import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler import LEAST_COMPUTED, LIFO, Request, Scheduler, SchedulerConfig, StepLoop, StepResult
from minivllm_scheduler.simulation import StepLoad, TimedRequest
from minivllm_scheduler.simulation.metrics import SimulationMetrics


class CountingExecutor:
    """Tells the metrics of each step, and counts by itself: a set of computed positions per request."""

    def __init__(self, metrics):
        self.metrics = metrics
        self.known = {}
        self.num_recomputed = 0
        self.launched = []
        self.time_s = 0.0
        self.admitted_s = {}

    def launch(self, output):
        self.time_s += 1.0
        for admitted in output.admitted:
            self.known.setdefault(admitted.request_id, set()).update(range(admitted.num_cached_tokens))
            self.admitted_s.setdefault(admitted.request_id, self.time_s)
        for row in output.rows:
            positions = set(range(row.start, row.start + row.num_tokens))
            self.num_recomputed += len(positions & self.known[row.request_id])
            self.known[row.request_id] |= positions
        load = StepLoad.of(output.rows)
        self.metrics.launched(output, load, self.time_s)
        self.launched.append(StepResult(output.step_id, ((0,),) * load.num_samples))

    def result(self):
        return self.launched.pop(0)


@given(data=st.data())
@settings(max_examples=60)
def test_the_report_agrees_with_counting_every_position(data):
    requests = [
        Request(
            request_id=str(index), prompt_token_ids=[*range(shared), *[index + 100] * own], max_tokens=outputs
        )
        for index, (shared, own, outputs) in enumerate(
            data.draw(
                st.lists(
                    st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 8)),
                    min_size=1,
                    max_size=6,
                )
            )
        )
    ]
    config = SchedulerConfig(
        max_num_seqs=4,
        max_num_batched_tokens=data.draw(st.integers(4, 30)),
        max_model_len=64,
        max_num_waiting=100,
        watermark=0.0,
    )
    kv = KVCacheManager(data.draw(st.integers(16, 24)), 2, prefix_caching=data.draw(st.booleans()))
    scheduler = Scheduler(config, kv, victim=data.draw(st.sampled_from([LIFO, LEAST_COMPUTED])))
    metrics = SimulationMetrics(kv)
    executor = CountingExecutor(metrics)
    loop = StepLoop(scheduler, executor, run_ahead=data.draw(st.booleans()))
    scheduler.add(requests, 0.0)
    for request in requests:
        metrics.arrived(TimedRequest(0.5, request))
    first_s, last_s, ended = {}, {}, []
    while loop.has_work:
        updates = loop.step(executor.time_s)
        now_s = executor.time_s + 0.25
        for update in updates:
            first_s.setdefault(update.request_id, now_s)
            last_s[update.request_id] = now_s
        ended += metrics.updated(updates, now_s)
    report = metrics.report(scheduler.stats(), 0)

    assert sorted(request.request_id for request in ended) == [request.request_id for request in requests]
    assert report.num_finished == len(requests)
    assert report.num_recomputed_tokens == executor.num_recomputed
    assert report.num_computed_tokens == scheduler.stats().total_scheduled_tokens
    assert report.num_steps == scheduler.stats().total_steps
    assert report.num_output_tokens == sum(request.max_tokens for request in requests)
    assert report.num_prompt_tokens == sum(len(request.prompt_token_ids) for request in requests)
    assert report.duration_s == max(last_s.values())
    mean = lambda times: sum(times) / len(times)  # noqa: E731
    assert report.queue_s.mean_s == pytest.approx(mean([at - 0.5 for at in executor.admitted_s.values()]))
    assert report.ttft_s.mean_s == pytest.approx(mean([at - 0.5 for at in first_s.values()]))
    assert report.latency_s.mean_s == pytest.approx(mean([at - 0.5 for at in last_s.values()]))
    tpots = [
        (last_s[request.request_id] - first_s[request.request_id]) / (request.max_tokens - 1)
        for request in requests
        if request.max_tokens > 1
    ]
    if tpots:
        assert report.tpot_s.mean_s == pytest.approx(mean(tpots))
    else:
        assert report.tpot_s is None


def idle_stats():
    config = SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=1, max_model_len=2, max_num_waiting=1)
    return Scheduler(config, KVCacheManager(8, 2)).stats()


def test_nothing_happened():
    report = SimulationMetrics(KVCacheManager(8, 2)).report(idle_stats(), 0)
    assert (report.num_finished, report.requests_per_s, report.output_tokens_per_s) == (0, 0.0, 0.0)
    assert (report.ttft_s, report.tpot_s, report.queue_s, report.latency_s) == (None, None, None, None)


def test_refusals_are_counted():
    metrics = SimulationMetrics(KVCacheManager(8, 2))
    metrics.refused()
    metrics.refused()
    assert metrics.report(idle_stats(), 0).num_refused == 2
