import pytest

from minivllm_server.api_keys import KeyLimits
from minivllm_server.rate_limit import Account, Refusal, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


class TestTokenBucket:
    def test_it_begins_full_and_fills_evenly_up_to_its_capacity(self):
        bucket = TokenBucket(60, now=0.0)
        assert bucket.wait_s(60, now=0.0) == 0
        bucket.take(60, now=0.0)
        assert bucket.wait_s(1, now=0.0) == pytest.approx(1.0)
        assert bucket.wait_s(5, now=2.0) == pytest.approx(3.0)
        assert bucket.wait_s(61, now=10_000.0) == pytest.approx(1.0)

    def test_a_debt_is_paid_back_first(self):
        bucket = TokenBucket(60, now=0.0)
        bucket.take(90, now=0.0)
        assert bucket.wait_s(0, now=10.0) == pytest.approx(20.0)
        assert bucket.wait_s(0, now=30.0) == 0


class TestAccount:
    def test_no_limit_refuses_nothing(self, clock):
        account = Account(KeyLimits(), clock)
        for _ in range(1000):
            assert account.open_request() is None
        account.charge_tokens(10**9)
        assert account.open_request() is None
        assert not KeyLimits().has_any

    def test_requests_per_minute(self, clock):
        account = Account(KeyLimits(requests_per_minute=2), clock)
        assert account.open_request() is None
        assert account.open_request() is None
        assert account.open_request() == Refusal("2 requests per minute", wait_s=pytest.approx(30))
        clock.now += 30
        assert account.open_request() is None

    def test_tokens_per_minute(self, clock):
        account = Account(KeyLimits(tokens_per_minute=60), clock)
        assert account.open_request() is None
        account.charge_tokens(70)
        assert account.open_request() == Refusal("60 tokens per minute", wait_s=pytest.approx(11))
        clock.now += 11
        assert account.open_request() is None

    def test_requests_at_once(self, clock):
        account = Account(KeyLimits(max_concurrent_requests=2), clock)
        assert account.open_request() is None
        assert account.open_request() is None
        assert account.open_request().limit == "2 requests at once"
        account.close_request()
        assert account.open_request() is None

    def test_a_refused_request_is_not_counted(self, clock):
        account = Account(KeyLimits(requests_per_minute=2, tokens_per_minute=60), clock)
        account.charge_tokens(61)
        for _ in range(5):
            assert account.open_request().limit == "60 tokens per minute"
        clock.now += 2
        assert account.open_request() is None
        assert account.open_request() is None
