import pytest

from minivllm_server.api_keys import KeyLimits
from minivllm_server.errors import ApiError
from minivllm_server.rate_limit import Account, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def expect_refusal(account):
    with pytest.raises(ApiError) as caught:
        account.open_request()
    assert caught.value.status_code == 429
    return caught.value


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
        account = Account("k", KeyLimits(), clock)
        for _ in range(1000):
            account.open_request()
        account.charge_tokens(10**9)
        account.open_request()
        assert not KeyLimits().has_any

    def test_requests_per_minute(self, clock):
        account = Account("k", KeyLimits(requests_per_minute=2), clock)
        account.open_request()
        account.open_request()
        error = expect_refusal(account)
        assert "'k'" in error.detail
        assert "2 requests per minute" in error.detail
        assert error.headers["Retry-After"] == "30"
        clock.now += 30
        account.open_request()

    def test_tokens_per_minute(self, clock):
        account = Account("k", KeyLimits(tokens_per_minute=60), clock)
        account.open_request()
        account.charge_tokens(70)
        error = expect_refusal(account)
        assert "60 tokens per minute" in error.detail
        assert error.headers["Retry-After"] == "11"
        clock.now += 11
        account.open_request()

    def test_requests_at_once(self, clock):
        account = Account("k", KeyLimits(max_concurrent_requests=2), clock)
        account.open_request()
        account.open_request()
        assert "2 requests at once" in expect_refusal(account).detail
        account.close_request()
        account.open_request()

    def test_a_refused_request_is_not_counted(self, clock):
        account = Account("k", KeyLimits(requests_per_minute=2, tokens_per_minute=60), clock)
        account.charge_tokens(61)
        for _ in range(5):
            expect_refusal(account)
        clock.now += 2
        account.open_request()
        account.open_request()
