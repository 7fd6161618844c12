import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.simulate.presets import DEVICES, MODELS
from minivllm_bench.simulate.specs import (
    parse_arrivals,
    parse_cost,
    parse_length,
    parse_shared_prefixes,
    parse_sweep,
)
from minivllm_scheduler.simulation import (
    ClosedLoop,
    ConstantCost,
    FixedLength,
    GammaArrivals,
    LinearCost,
    LogNormalLength,
    PoissonArrivals,
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
        (parse_cost, "constant:0.5", ConstantCost(0.5)),
        (parse_cost, "linear:base_s=1,per_token_s=1e-3", LinearCost(base_s=1.0, per_token_s=0.001)),
        (parse_sweep, "num_blocks=5,7", ("num_blocks", (5, 7))),
    ],
)
def test_a_text_is_what_it_says(parse, text, expected):
    assert parse("--option", text) == expected


def test_every_device_serves_every_model_within_a_second():
    for device in DEVICES:
        for model in MODELS:
            step_s = parse_cost("--cost", f"roofline:{device}:{model}").step_s(StepLoad(1, 1, 1, 100, 100))
            assert 0 < step_s < 1


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
        (parse_sweep, "num_blocks", "NAME=VALUE"),
        (parse_sweep, "victim=1,2", "num_blocks"),
        (parse_sweep, "num_blocks=1,,2", "not a number"),
        (parse_sweep, "num_blocks=1,0", "at least 1"),
    ],
)
def test_a_text_that_says_nothing_is_refused_with_option_and_value(parse, text, named):
    with pytest.raises(InvalidSetting, match="--option") as caught:
        parse("--option", text)
    assert text in str(caught.value)
    assert named in str(caught.value)
