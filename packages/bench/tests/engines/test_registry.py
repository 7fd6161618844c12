import sys

import pytest

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.engines.registry import open_engine
from minivllm_bench.errors import InvalidSetting, MissingExtra

SETTINGS = EngineSettings(model="smollm2", dtype="float32", device="cpu", num_threads=1)


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(InvalidSetting, match="'sglang'; there are minivllm, hf, hf-cb, vllm, nano-vllm"):
        open_engine("sglang", SETTINGS)


@pytest.mark.parametrize(
    ("engine", "module", "extra"),
    [
        ("minivllm", "minivllm_runtime", "engine"),
        ("hf", "transformers", "hf"),
        ("hf-cb", "transformers", "hf"),
    ],
)
def test_a_missing_package_names_the_extra_that_brings_it(engine, module, extra, monkeypatch):
    for name in ("minivllm", "hf", "hf_continuous"):
        monkeypatch.delitem(sys.modules, f"minivllm_bench.engines.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"minivllm-bench\[{extra}\]"):
        open_engine(engine, SETTINGS)
