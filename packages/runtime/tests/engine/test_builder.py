"""How settings, model and KV pool agree on the longest request, and what is refused before it is too late."""

import pytest
import torch

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device.torch_ops import TorchOps
from minivllm_runtime.engine import builder
from minivllm_runtime.engine.builder import assemble_engine, build_engine
from minivllm_runtime.errors import InvalidParameter, ModelLoadError

from ..scripted.byte_level import byte_level_tokenizer
from ..scripted.model import ScriptedModel, scripted_config

CONTEXT = 128


def assemble(**settings):
    return assemble_engine(
        EngineConfig(**{"block_size": 4, "max_num_seqs": 2, **settings}),
        ScriptedModel([7], prompt_length=1),
        byte_level_tokenizer(),
        scripted_config(context=CONTEXT),
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({"num_blocks": 64}, CONTEXT),
        ({"num_blocks": 8}, 33),  # the last token needs no place in the pool
        ({"num_blocks": 8, "max_model_len": 33}, 33),
        ({"num_blocks": 64, "max_model_len": 5}, 5),
        ({"num_blocks": 1, "block_size": 1}, 2),
    ],
    ids=str,
)
def test_the_longest_request_is_what_model_pool_and_settings_allow(settings, longest):
    built = assemble(**settings)
    assert built.max_model_len == longest
    assert (built.num_blocks, built.core.stats().num_blocks) == (settings["num_blocks"],) * 2


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({"max_model_len": CONTEXT + 1}, ("129", "128")),
        ({"num_blocks": 8, "max_model_len": 34}, ("34", "32")),
    ],
    ids=str,
)
def test_a_longer_one_is_refused_with_the_numbers(settings, numbers):
    with pytest.raises(InvalidParameter) as refusal:
        assemble(**settings)
    assert refusal.value.param == "max_model_len"
    assert all(number in str(refusal.value) for number in numbers)


@pytest.mark.parametrize(
    "settings",
    [{"max_model_len": 10**6}, {"max_model_len": 4096, "num_blocks": 8}, {"num_blocks": 10**12}],
    ids=str,
)
def test_what_is_known_without_the_weights_is_refused_before_they_are_read(settings):
    stages = []
    with pytest.raises(InvalidParameter, match=next(iter(settings))):
        build_engine(EngineConfig(device="cpu", **settings), progress=lambda *stage: stages.append(stage))
    assert stages == []


def test_who_builds_can_refuse_a_model_before_its_weights_are_read():
    def refuse(model_config):
        raise InvalidParameter("max_tokens", f"more than {model_config.max_position_embeddings}")

    stages = []
    with pytest.raises(InvalidParameter, match="more than 8192"):
        build_engine(
            EngineConfig(device="cpu"), progress=lambda *stage: stages.append(stage), on_model=refuse
        )
    assert stages == []


@pytest.mark.parametrize(
    "settings", [{"num_blocks": 10**12}, {"num_blocks": 1, "block_size": 10**15}], ids=str
)
def test_a_pool_that_no_memory_holds_is_refused(settings):
    with pytest.raises(InvalidParameter, match="num_blocks"):
        assemble(**settings)


def test_a_pool_of_no_chosen_size_holds_what_all_requests_can_use_and_no_more():
    assert assemble().num_blocks == 2 * CONTEXT // 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_refused():
    with pytest.raises(InvalidParameter, match="no CUDA device"):
        build_engine(EngineConfig(device="cuda"))


def test_a_start_chooses_what_computes_once(monkeypatch):
    chosen = []

    def choose(device, dtype, config):
        chosen.append((device.type, dtype))
        return TorchOps()

    monkeypatch.setattr(builder, "choose_ops", choose)
    config = EngineConfig(device="cpu", dtype="bfloat16", num_blocks=8, max_model_len=16)
    assert build_engine(config).kernels == "PyTorch"
    assert chosen == [("cpu", torch.bfloat16)]


def test_a_missing_model_is_refused(tmp_path):
    with pytest.raises(ModelLoadError):
        build_engine(EngineConfig(model=str(tmp_path / "model.gguf")))
