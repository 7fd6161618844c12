import dataclasses
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_kvcache import InvalidArgument
from minivllm_scheduler import (
    FCFS,
    LEAST_COMPUTED,
    PRIORITY,
    RESERVE_ALL,
    FairShare,
    Request,
    SchedulerConfig,
)
from minivllm_scheduler.simulation import (
    ClosedLoop,
    ConstantCost,
    FixedLength,
    GammaArrivals,
    InvalidCost,
    InvalidWorkload,
    LinearCost,
    MultiTurn,
    PoissonArrivals,
    RequestClass,
    SharedPrefixes,
    SimulatedEngine,
    Simulator,
    SyntheticWorkload,
    TimedRequest,
    Trace,
    TraceRow,
    UniformLength,
    simulate,
)


def make_engine(num_blocks=200, *, block_size=4, prefix_caching=True, run_ahead=False, host_s=0.0, **limits):
    config = SchedulerConfig(
        **{"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 512, "max_num_waiting": 1000}
        | limits
    )
    return SimulatedEngine(
        config=config,
        num_blocks=num_blocks,
        block_size=block_size,
        prefix_caching=prefix_caching,
        run_ahead=run_ahead,
        host_s=host_s,
    )


def make_workload(num_requests=40, **options):
    return SyntheticWorkload(
        **{
            "num_requests": num_requests,
            "arrivals": PoissonArrivals(2.0),
            "prompt_tokens": UniformLength(1, 60),
            "output_tokens": UniformLength(1, 20),
        }
        | options
    )


def test_one_request_by_hand():
    """Prompt of 100 tokens, 64 a step, 3 outputs, a second each: steps end at 11, 12, 13, 14."""
    report = simulate(make_engine(), ConstantCost(1.0), Trace([TraceRow(10.0, 100, 3)]))
    assert report.num_steps == report.num_rows == 4
    assert report.num_computed_tokens == 102
    assert report.duration_s == 14.0
    assert report.queue_s.max_s == 0.0
    assert report.ttft_s.max_s == 2.0
    assert report.tpot_s.max_s == 1.0
    assert report.latency_s.max_s == 4.0
    assert report.output_tokens_per_s == 3 / 14
    assert report.kv_use_peak == 26 / 200
    assert report.kv_use_mean == pytest.approx((16 + 25 + 26 + 26) / 14 / 200)
    assert report.kv_use[-1].in_use_blocks == 0


def test_an_arrival_during_a_step_waits_for_its_end():
    report = simulate(make_engine(), ConstantCost(1.0), Trace([TraceRow(0.0, 4, 2), TraceRow(0.25, 4, 1)]))
    assert report.queue_s.max_s == 0.75
    assert report.duration_s == 2.0


def test_recomputed_tokens_by_hand():
    """Two requests fill four blocks; the older needs a fifth, and the younger computes its 8 known tokens again."""
    engine = make_engine(4, prefix_caching=False, watermark=0.0)
    report = simulate(engine, ConstantCost(1.0), Trace([TraceRow(0.0, 7, 4), TraceRow(0.0, 7, 4)]))
    assert report.num_preemptions == 1
    assert report.num_recomputed_tokens == 8
    assert report.num_computed_tokens == 2 * 10 + 8


def test_a_full_queue_and_a_request_too_large_are_refused_and_the_rest_is_served():
    rows = [TraceRow(0.0, 5, 5)] * 5 + [TraceRow(0.0, 600, 5)]
    engine = make_engine(max_num_seqs=1, max_num_batched_tokens=5, max_num_waiting=2)
    report = simulate(engine, ConstantCost(1.0), Trace(rows))
    assert (report.num_finished, report.num_refused) == (3, 3)


def test_users_of_a_closed_loop_go_on_after_a_refusal():
    workload = make_workload(30, arrivals=ClosedLoop(4), prompt_tokens=UniformLength(1, 600))
    report = simulate(make_engine(), ConstantCost(1.0), workload)
    assert report.num_refused > 0
    assert report.num_finished + report.num_refused == 30


@pytest.mark.parametrize("run_ahead", [False, True])
def test_stop_ids_end_requests_and_cost_a_step_ahead(run_ahead):
    workload = make_workload(30, output_tokens=FixedLength(5), max_tokens=20)
    report = simulate(make_engine(run_ahead=run_ahead), ConstantCost(0.1), workload)
    assert (report.num_finished, report.num_output_tokens) == (30, 150)
    assert report.num_discarded_tokens == (30 if run_ahead else 0)
    needed = report.num_prompt_tokens + 30 * 4
    assert report.num_computed_tokens == needed + report.num_discarded_tokens


def test_reserving_for_max_tokens_admits_fewer_than_answers_need():
    workload = make_workload(40, arrivals=ClosedLoop(8), output_tokens=FixedLength(5), max_tokens=80)
    reserving = dataclasses.replace(make_engine(60), admission=RESERVE_ALL)
    peaks = [
        simulate(engine, ConstantCost(0.1), workload).kv_use_peak for engine in (make_engine(60), reserving)
    ]
    assert peaks[1] < peaks[0]


@pytest.mark.parametrize(
    ("order", "first"), [(FCFS, None), (PRIORITY, "late"), (FairShare({"early": 1e-3}), "late")]
)
def test_the_report_shows_what_an_order_gives_each_class(order, first):
    classes = (RequestClass("early", 1), RequestClass("late", 0))
    workload = make_workload(60, arrivals=PoissonArrivals(100.0), classes=classes)
    engine = dataclasses.replace(make_engine(max_num_seqs=1), order=order)
    report = simulate(engine, ConstantCost(0.1), workload)
    assert [(each.tenant, each.priority) for each in report.classes] == [("early", 1), ("late", 0)]
    assert sum(each.num_finished for each in report.classes) == report.num_finished == 60
    assert sum(each.num_output_tokens for each in report.classes) == report.num_output_tokens
    early, late = (each.ttft_s.p50_s for each in report.classes)
    assert early == pytest.approx(late, rel=0.3) if first is None else late < early / 2


@pytest.mark.parametrize("policy", ["order", "admission", "victim"])
def test_a_policy_at_fault_is_counted(policy):
    engine = make_engine(20, watermark=0.0)
    faulty = dataclasses.replace(engine, **{policy: lambda *_asked: "nonsense"})
    workload = make_workload(40, arrivals=PoissonArrivals(100.0))
    default, report = (simulate(each, ConstantCost(0.1), workload) for each in (engine, faulty))
    assert (default.num_policy_faults, report.num_policy_faults > 0) == (0, True)
    assert default.num_preemptions > 0
    assert report == dataclasses.replace(default, num_policy_faults=report.num_policy_faults)


def test_one_ahead_hides_the_host():
    workload = Trace([TraceRow(0.0, 4, 100)])
    in_order = simulate(make_engine(host_s=0.5), ConstantCost(1.0), workload)
    one_ahead = simulate(make_engine(host_s=0.5, run_ahead=True), ConstantCost(1.0), workload)
    assert in_order.duration_s == pytest.approx(150.0)
    assert one_ahead.duration_s == pytest.approx(100.5)


def test_shared_prefixes_and_turns_hit_the_cache():
    shared = make_workload(shared_prefixes=SharedPrefixes(1, 40))
    report = simulate(make_engine(), ConstantCost(0.01), shared)
    assert report.num_cached_tokens >= 40 * 35
    assert simulate(make_engine(prefix_caching=False), ConstantCost(0.01), shared).num_cached_tokens == 0
    turns = make_workload(multi_turn=MultiTurn(FixedLength(4), 1.0))
    assert simulate(make_engine(), ConstantCost(0.01), turns).num_cached_tokens > 0
    assert simulate(make_engine(), ConstantCost(0.01), make_workload()).num_cached_tokens == 0


@given(data=st.data())
@settings(max_examples=40)
def test_every_request_ends_and_the_counts_add_up(data):
    workload = make_workload(
        data.draw(st.integers(1, 25)),
        arrivals=data.draw(
            st.sampled_from(
                [PoissonArrivals(5.0), GammaArrivals(5.0, 4.0), ClosedLoop(3), ClosedLoop(12, 0.5)]
            )
        ),
        shared_prefixes=data.draw(st.sampled_from([None, SharedPrefixes(2, 9)])),
        multi_turn=data.draw(st.sampled_from([None, MultiTurn(UniformLength(1, 3), 0.2)])),
        seed=data.draw(st.integers(0, 99)),
    )
    engine = make_engine(
        data.draw(st.integers(20, 90)),
        prefix_caching=data.draw(st.booleans()),
        run_ahead=data.draw(st.booleans()),
    )
    engine = dataclasses.replace(engine, victim=data.draw(st.sampled_from([engine.victim, LEAST_COMPUTED])))
    counts = []
    report = simulate(engine, LinearCost(base_s=0.01, per_token_s=0.001), workload, progress=counts.append)
    assert report.num_finished + report.num_refused == workload.num_requests
    assert counts == sorted(set(counts))
    assert not counts or counts[-1] <= workload.num_requests
    needed = report.num_prompt_tokens + report.num_output_tokens - report.num_finished
    if not engine.prefix_caching:
        assert report.num_computed_tokens - report.num_recomputed_tokens == needed
    assert (report.num_preemptions == 0) <= (report.num_recomputed_tokens == 0)
    if report.num_finished:
        assert report.queue_s.max_s <= report.ttft_s.max_s <= report.latency_s.max_s <= report.duration_s
        assert 0 < report.kv_use_mean <= report.kv_use_peak <= 1
        assert report.kv_use[0].time_s <= report.kv_use[-1].time_s


@pytest.mark.parametrize("run_ahead", [False, True])
def test_the_report_does_not_depend_on_the_process(run_ahead):
    program = (
        "from minivllm_scheduler import *; from minivllm_scheduler.simulation import *\n"
        "config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=512, max_num_waiting=99)\n"
        f"engine = SimulatedEngine(config=config, num_blocks=40, block_size=4, run_ahead={run_ahead})\n"
        "lengths = LogNormalLength(20, 1, high=60)\n"
        "workload = SyntheticWorkload(num_requests=40, arrivals=GammaArrivals(9, 3), prompt_tokens=lengths,"
        " output_tokens=UniformLength(1, 20), shared_prefixes=SharedPrefixes(3, 8))\n"
        "print(simulate(engine, LinearCost(base_s=0.01, per_token_s=0.001), workload))"
    )
    reports = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert reports[0] == reports[1]
    assert b"num_finished=40" in reports[0]


class Disordered:
    """Traffic whose second request arrives before its first."""

    def arrivals(self):
        for name, time_s in (("a", 2.0), ("b", 1.0)):
            yield TimedRequest(time_s, Request(request_id=name, prompt_token_ids=[1], max_tokens=1))

    def follow_up(self, request, now_s):
        return None


def test_requests_out_of_order_are_refused():
    simulator = Simulator(make_engine(), ConstantCost(1.0), Disordered())
    with pytest.raises(InvalidWorkload, match=r"request 'b' arrives at 1\.0 s, after one at 2\.0 s"):
        simulator.run()


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(InvalidCost, match="host_s is -1"):
        make_engine(host_s=-1)
    with pytest.raises(InvalidArgument, match="0"):
        simulate(make_engine(0), ConstantCost(1.0), make_workload())
