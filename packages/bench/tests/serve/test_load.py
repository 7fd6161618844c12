import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.load import LoadTarget, RequestRate, Streams, split
from minivllm_bench.workloads import BenchRequest

TARGET = LoadTarget(endpoint=Endpoint("x", 1), model="m", timeout_s=9)
counts = st.integers(1, 40)


def numbered(count):
    return [BenchRequest((index,), 1) for index in range(count)]


@given(counts, counts, st.integers(1, 9))
def test_every_request_is_in_one_share_and_streams_are_spread_evenly(
    num_requests, num_streams, num_processes
):
    requests = numbered(num_requests)
    shares = split(Streams(num_streams), requests, TARGET, num_processes=num_processes, seed="s")
    assert len(shares) == min(num_requests, num_streams, num_processes)
    assert (
        sorted((each for share in shares for each in share.requests), key=lambda r: r.prompt_token_ids)
        == requests
    )
    assert sum(share.num_streams for share in shares) == min(num_streams, num_requests)
    assert max(share.num_streams for share in shares) - min(share.num_streams for share in shares) <= 1
    assert all(share.num_streams <= len(share.requests) for share in shares)
    assert all(share.arrivals_s is None for share in shares)


@given(counts, st.integers(1, 9))
def test_an_open_loop_has_the_same_arrivals_however_it_is_split(num_requests, num_processes):
    def arrivals(processes):
        shares = split(RequestRate(2.0), numbered(num_requests), TARGET, num_processes=processes, seed="s")
        assert all(share.num_streams == len(share.requests) for share in shares)
        return {
            request: arrival_s
            for share in shares
            for request, arrival_s in zip(share.requests, share.arrivals_s, strict=True)
        }

    assert arrivals(num_processes) == arrivals(1)
    assert list(arrivals(1).values()) == sorted(arrivals(1).values())


def test_arrivals_have_the_rate_and_depend_on_the_seed():
    def last_s(seed):
        (share,) = split(RequestRate(4.0), numbered(4000), TARGET, num_processes=1, seed=seed)
        return share.arrivals_s[-1]

    assert last_s("a") == pytest.approx(1000, rel=0.1)
    assert last_s("a") != last_s("b")


@pytest.mark.parametrize(
    "build", [lambda: Streams(0), lambda: RequestRate(0.0), lambda: RequestRate(float("nan"))]
)
def test_no_load_is_refused(build):
    with pytest.raises(InvalidSetting):
        build()


def test_loads_have_names():
    assert [str(Streams(1)), str(Streams(16)), str(RequestRate(2.5))] == [
        "1 stream",
        "16 streams",
        "2.5 requests/s",
    ]
