import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.safetensors_checkpoint import SafetensorsCheckpoint

from .tiny_models import tiny_model

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def single(tmp_path: Path) -> Path:
    tiny_model("llama").save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Three shards or more, and a stray file that holds zeros under the same names."""
    model = tiny_model("llama")
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) >= 3
    zeros = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    save_file(zeros, tmp_path / "consolidated.safetensors")
    return tmp_path


def shard_of(folder: Path, name: str) -> Path:
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][name]


@pytest.mark.parametrize("layout", ["single", "sharded"])
def test_all_tensors_come_back_under_their_names(request, layout):
    checkpoint = SafetensorsCheckpoint(request.getfixturevalue(layout))
    expected = tiny_model("llama").state_dict()
    tensors = list(checkpoint.tensors())
    assert checkpoint.num_tensors == len(tensors) == len(expected)
    assert dict(tensors).keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tensors_keep_their_dtype(tmp_path, dtype):
    tiny_model("qwen2").to(dtype).save_pretrained(tmp_path)
    checkpoint = SafetensorsCheckpoint(tmp_path)
    assert {tensor.dtype for _, tensor in checkpoint.tensors()} == {dtype}
    assert checkpoint.config.checkpoint_dtype == str(dtype).removeprefix("torch.")


def test_a_head_beside_a_tied_embedding_is_given_and_a_missing_one_is_not(tmp_path):
    model = tiny_model("llama", tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in dict(SafetensorsCheckpoint(tmp_path).tensors())
    save_file(
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        tmp_path / SINGLE,
        metadata={"format": "pt"},
    )
    assert "lm_head.weight" in dict(SafetensorsCheckpoint(tmp_path).tensors())


def test_tensors_that_the_index_does_not_name_are_not_read(sharded):
    shard = shard_of(sharded, "model.norm.weight")
    save_file(load_file(shard) | {"model.extra.weight": torch.ones(2)}, shard)
    assert "model.extra.weight" not in dict(SafetensorsCheckpoint(sharded).tensors())


def test_computed_buffers_of_old_checkpoints_are_left_out(single):
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file(load_file(single / SINGLE) | {name: torch.ones(4)}, single / SINGLE)
    checkpoint = SafetensorsCheckpoint(single)
    names = [name for name, _ in checkpoint.tensors()]
    assert name not in names
    assert checkpoint.num_tensors == len(names)


def refusal(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        SafetensorsCheckpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_without_weights_is_refused(single):
    (single / SINGLE).unlink()
    assert "neither model.safetensors nor model.safetensors.index.json" in refusal(single)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_file_cut_short_is_refused(single, keep):
    data = (single / SINGLE).read_bytes()
    (single / SINGLE).write_bytes(data[:keep])
    assert "model.safetensors is damaged" in refusal(single)


def test_a_shard_cut_short_is_refused(sharded):
    shard = shard_of(sharded, "model.norm.weight")
    shard.write_bytes(shard.read_bytes()[:-1])
    assert f"{shard.name} is damaged" in refusal(sharded)


def test_a_missing_shard_is_refused(sharded):
    shard = shard_of(sharded, "model.norm.weight")
    shard.unlink()
    assert refusal(sharded) == f"no such file: {shard}"


def test_a_tensor_that_its_shard_lacks_is_refused(sharded):
    shard = shard_of(sharded, "model.norm.weight")
    tensors = load_file(shard)
    del tensors["model.norm.weight"]
    save_file(tensors, shard)
    assert f"{shard.name} lacks model.norm.weight" in refusal(sharded)


@pytest.mark.parametrize(
    "index",
    [
        "{",
        "{}",
        '{"weight_map": {}}',
        '{"weight_map": []}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "../model.safetensors"}}',
        '{"weight_map": {"a": "/model.safetensors"}}',
        '{"weight_map": {"a": ".."}}',
    ],
)
def test_a_damaged_index_is_refused(sharded, index):
    (sharded / INDEX).write_text(index)
    assert INDEX in refusal(sharded)
