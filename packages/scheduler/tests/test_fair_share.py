import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler import Arrival, FairShare, InvalidConfig, Request


def request(tenant, cost=10):
    return Request(request_id="r", prompt_token_ids=range(cost - 1), max_tokens=1, tenant=tenant)


def ranks(order, tenants, front_rank=0.0):
    return [order(request(tenant), Arrival(0.0, front_rank)) for tenant in tenants]


def test_tenants_take_turns_however_many_requests_one_sends():
    order = FairShare()
    assert ranks(order, "aaaabb") == [0, 10, 20, 30, 0, 10]


def test_a_tenant_with_twice_the_weight_moves_half_as_fast():
    assert ranks(FairShare({"a": 2.0}), "aaabb") == [0, 5, 10, 0, 10]


def test_a_tenant_that_was_idle_has_saved_up_nothing_and_pays_nothing():
    order = FairShare()
    ranks(order, "aaaaa")
    assert ranks(order, "ab", front_rank=40.0) == [50, 40]
    assert ranks(order, "ab", front_rank=500.0) == [500, 500]


def test_clocks_that_the_queue_has_passed_are_forgotten():
    order = FairShare()
    for index in range(1000):
        ranks(order, [str(index)], front_rank=100.0 * index)
    assert len(order._clocks) <= 2


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_weight_is_positive_and_finite(weight):
    with pytest.raises(InvalidConfig, match=f"weight of tenant 'a' is {weight}"):
        FairShare({"a": weight})


@given(
    costs=st.tuples(*[st.lists(st.integers(2, 30), min_size=12, max_size=12)] * 2),
    weights=st.tuples(st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from([0.5, 1.0, 4.0])),
    late=st.integers(0, 8),
)
def test_while_two_tenants_wait_their_shares_differ_by_a_request_of_each(costs, weights, late):
    """Tenant b's requests come after `late` of a's were admitted."""
    order = FairShare({"a": weights[0], "b": weights[1]})
    waiting = {"a": [], "b": []}
    front = 0.0

    def arrive(tenant, tenant_costs):
        for cost in tenant_costs:
            waiting[tenant].append((order(request(tenant, cost), Arrival(0.0, front)), cost))

    arrive("a", costs[0])
    served = {"a": 0.0, "b": 0.0}
    admitted = 0
    bound = max(costs[0]) / weights[0] + max(costs[1]) / weights[1]
    while True:
        if admitted == late:
            arrive("b", costs[1])
        present = [tenant for tenant in "ab" if waiting[tenant]]
        if admitted >= late and len(present) < 2:
            break
        tenant = min(present, key=lambda name: waiting[name][0][0])
        rank, cost = waiting[tenant].pop(0)
        front = max(front, rank)
        admitted += 1
        if admitted <= late:
            continue
        served[tenant] += cost / weights["ab".index(tenant)]
        assert abs(served["a"] - served["b"]) <= bound + 1e-9
