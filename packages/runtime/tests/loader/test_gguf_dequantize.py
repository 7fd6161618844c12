import gguf
import numpy as np
import pytest
import torch

from minivllm_runtime.loader.gguf_dequantize import dequantize
from minivllm_runtime.loader.gguf_reader import FORMATS

NUM_BLOCKS = 48
BLOCK_FORMATS = [name for name in (f.name for f in FORMATS.values()) if name not in ("F32", "F16", "BF16")]


def format_of(name: str):
    return next(f for f in FORMATS.values() if f.name == name)


def random_blocks(name: str) -> np.ndarray:
    """Random bits, except that half-precision scales are numbers: where they are shows in the reference."""
    rng = np.random.default_rng(len(name))
    ggml_format = format_of(name)
    blocks = rng.integers(0, 256, (NUM_BLOCKS, ggml_format.block_bytes), dtype=np.uint8)
    positions = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}.get(name, (0, 2))
    for position in positions if name not in ("Q4_0", "Q5_0", "Q8_0") else (0,):
        scales = rng.standard_normal(NUM_BLOCKS).astype(np.float16)
        blocks[:, position : position + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_blocks_decode_to_the_bits_of_the_gguf_package(name):
    blocks = random_blocks(name)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    shape = (NUM_BLOCKS // 2, 2 * format_of(name).block_size)
    actual = dequantize(blocks.reshape(-1), format_of(name), shape)
    assert actual.dtype == torch.float32
    assert np.array_equal(actual.numpy().view(np.uint32), expected.reshape(shape).view(np.uint32))


@pytest.mark.parametrize(
    ("name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_plain_formats_keep_every_value(name, dtype):
    values = torch.randn(3, 5).to(dtype)
    stored = values.view(torch.uint8).numpy().reshape(-1)
    assert torch.equal(dequantize(stored, format_of(name), (3, 5)), values.float())


def test_block_sizes_are_those_of_the_gguf_package():
    for code, ggml_format in FORMATS.items():
        kind = gguf.GGMLQuantizationType(code)
        assert ggml_format.name == kind.name
        assert (ggml_format.block_size, ggml_format.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


def test_the_result_does_not_share_memory_with_the_file():
    stored = np.ones(8, dtype=np.float32).view(np.uint8)
    values = dequantize(stored, format_of("F32"), (8,))
    values.zero_()
    assert stored.any()
