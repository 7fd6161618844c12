import json

import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.model_configs import CONFIGS
from minivllm_bench.simulate.devices import DEVICES
from minivllm_bench.simulate.specs import (
    Cost,
    parse_admission,
    parse_arrivals,
    parse_classes,
    parse_cost,
    parse_length,
    parse_order,
    parse_shared_prefixes,
    parse_sweep,
    parse_victim,
)
from minivllm_scheduler import COST_AWARE, FCFS, RESERVE_ALL, FairShare, PriorityWithAgeing
from minivllm_scheduler.simulation import (
    ClosedLoop,
    ConstantCost,
    FixedLength,
    GammaArrivals,
    LinearCost,
    LogNormalLength,
    PoissonArrivals,
    RequestClass,
    SharedPrefixes,
    StepLoad,
    UniformLength,
)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_length, "7", FixedLength(7)),
        (parse_length, "uniform:3:9", UniformLength(3, 9)),
        (parse_length, "lognormal:500:1.5", LogNormalLength(500.0, 1.5)),
        (parse_arrivals, "poisson:2.5", PoissonArrivals(2.5)),
        (parse_arrivals, "gamma:2:3", GammaArrivals(2.0, 3.0)),
        (parse_arrivals, "closed:4", ClosedLoop(4)),
        (parse_arrivals, "closed:4:1.5", ClosedLoop(4, 1.5)),
        (parse_shared_prefixes, None, None),
        (parse_shared_prefixes, "3:400", SharedPrefixes(3, 400)),
        (parse_cost, "constant:0.5", Cost(ConstantCost(0.5))),
        (parse_cost, "linear:base_s=1,per_token_s=1e-3", Cost(LinearCost(base_s=1.0, per_token_s=0.001))),
        (parse_sweep, "num_blocks=5,7", ("num_blocks", (5, 7))),
        (parse_sweep, "watermark=0,0.1", ("watermark", (0.0, 0.1))),
        (parse_sweep, "victim=lifo,cost-aware", ("victim", ("lifo", "cost-aware"))),
        (parse_order, "fcfs", FCFS),
        (parse_order, "priority", PriorityWithAgeing()),
        (parse_order, "priority:5", PriorityWithAgeing(5.0)),
        (parse_victim, "cost-aware", COST_AWARE),
        (parse_admission, "watermark", None),
        (parse_admission, "reserve-all", RESERVE_ALL),
        (parse_classes, None, ()),
        (parse_classes, "a:0:0.9,b:5:2", (RequestClass("a", 0, 0.9), RequestClass("b", 5, 2.0))),
    ],
)
def test_a_text_is_what_it_says(parse, text, expected):
    assert parse("--option", text) == expected


def test_a_fair_share_is_a_new_one_each_time():
    first, second = (parse_order("--order", "fair-share:a=2:b=0.5") for _ in range(2))
    assert isinstance(first, FairShare)
    assert first is not second


def test_every_device_serves_every_model_within_a_second():
    for device in DEVICES:
        for model in CONFIGS:
            cost = parse_cost("--cost", f"roofline:{device}:{model}")
            assert 0 < cost.model.step_s(StepLoad(1, 1, 1, 100, 100)) < 1
            assert cost.engine is None


def test_a_roofline_can_be_of_any_device_and_any_model(tmp_path):
    load = StepLoad(8, 8, 8, 8000, 8000)

    def step_s(text):
        return parse_cost("--cost", text).model.step_s(load)

    named_s = step_s("roofline:h100:llama-3.2-1b")
    assert step_s("roofline:989e12/3.35e12:llama-3.2-1b") == named_s
    config = dict(CONFIGS["llama-3.2-1b"])
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert step_s(f"roofline:h100:{path}") == named_s
    del config["hidden_size"]
    path.write_text(json.dumps(config))
    with pytest.raises(InvalidSetting, match=r"config\.json .* no hidden_size"):
        parse_cost("--cost", f"roofline:h100:{path}")


@pytest.mark.parametrize(
    ("parse", "text", "named"),
    [
        (parse_length, "", "''"),
        (parse_length, "x", "'x'"),
        (parse_length, "0", "0 to 0"),
        (parse_length, "uniform:3", "LOW:HIGH"),
        (parse_length, "uniform:9:3", "9 to 3"),
        (parse_length, "normal:3:4", "lognormal:MEDIAN:SIGMA"),
        (parse_arrivals, "poisson", "poisson:RATE"),
        (parse_arrivals, "poisson:0", "rate_per_s is 0"),
        (parse_arrivals, "poisson:fast", "not a number"),
        (parse_arrivals, "gamma:1", "gamma:RATE:CV"),
        (parse_arrivals, "closed:1:2:3", "closed:USERS"),
        (parse_shared_prefixes, "3", "GROUPS:TOKENS"),
        (parse_shared_prefixes, "0:3", "num_groups is 0"),
        (parse_cost, "free", "constant:SECONDS"),
        (parse_cost, "constant:-1", "seconds is -1"),
        (parse_cost, "linear:", "TERM=SECONDS"),
        (parse_cost, "linear:base_s=1,base_s=2", "each TERM once"),
        (parse_cost, "linear:speed=1", "per_token_s"),
        (parse_cost, "linear:base_s=-1", "base_s is -1"),
        (parse_cost, "roofline:h100:gpt-9", "llama-3.1-8b"),
        (parse_cost, "roofline:abacus:llama-3.1-8b", "h100"),
        (parse_cost, "roofline:1e12/0:llama-3.1-8b", "bytes_per_s is 0"),
        (parse_cost, "roofline:fast/1:llama-3.1-8b", "not a number"),
        (parse_sweep, "num_blocks", "NAME=VALUE"),
        (parse_sweep, "trace=1,2", "num_blocks"),
        (parse_sweep, "num_blocks=2,2", "differ"),
        (parse_order, "lifo", "fair-share"),
        (parse_order, "fcfs:1", "fcfs, priority"),
        (parse_order, "priority:-1", "ageing_s is -1"),
        (parse_order, "fair-share:a", "TENANT=WEIGHT"),
        (parse_order, "fair-share:a=0", "weight of tenant 'a' is 0"),
        (parse_victim, "random", "least-computed"),
        (parse_admission, "all", "reserve-all"),
        (parse_classes, "a:1", "TENANT:PRIORITY:SHARE"),
        (parse_classes, "a:x:1", "not a number"),
        (parse_classes, "a:0:0", "share is 0"),
        (parse_sweep, "num_blocks=1,,2", "not a number"),
        (parse_sweep, "num_blocks=1,0", "at least 1"),
    ],
)
def test_a_text_that_says_nothing_is_refused_with_option_and_value(parse, text, named):
    with pytest.raises(InvalidSetting, match="--option") as caught:
        parse("--option", text)
    assert text in str(caught.value)
    assert named in str(caught.value)
