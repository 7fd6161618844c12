"""Turns GGML's block formats into float32.

A row is cut into blocks; a block holds one or two half-precision scales and small integers q, and stands for
`scale * q + offset`. The K formats cut a block of 256 into 8 or 16 sub-blocks whose scales are small integers
themselves. Layouts: `ggml-common.h` and `dequantize_row_*` of https://github.com/ggml-org/ggml. Each product
and sum is a float32 operation in the order of that reference, so the results are bit-equal.

Shapes below: N blocks; `blocks` is uint8 [N, block_bytes], `out` float32 [N, block_size].
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from minivllm_runtime.loader.gguf_reader import GGMLFormat


def dequantize(data: npt.NDArray[np.uint8], ggml_format: GGMLFormat, shape: tuple[int, ...]) -> Tensor:
    """Stored bytes to numbers.

    Args:
        data: [num_bytes], writable so that PyTorch can wrap it; it is only read.
        ggml_format: Format of the bytes.
        shape: Row-major shape of the tensor; its last dimension is made of whole blocks.

    Returns:
        A new float32 tensor of that shape.
    """
    # NumPy asks the kernel for huge pages, PyTorch does not; page faults would cost more than the arithmetic.
    out = torch.from_numpy(np.empty(shape, dtype=np.float32))
    blocks = torch.from_numpy(data).view(-1, ggml_format.block_bytes)
    _DECODERS[ggml_format.name](blocks, out.view(-1, ggml_format.block_size))
    return out


def _half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of each block, as float32 [N, 1]."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _split(packed: Tensor, bits: int, parts: int) -> Tensor:
    """Fields of `bits` bits, lowest first: [..., L] to [..., parts, L]."""
    shifts = torch.arange(parts, dtype=torch.uint8).mul_(bits).unsqueeze(-1)
    return (packed.unsqueeze(-2) >> shifts) & ((1 << bits) - 1)


def _nibbles(packed: Tensor) -> Tensor:
    """[N, 16] to [N, 32]: the low halves of all bytes, then the high halves."""
    return _split(packed, 4, 2).flatten(1)


def _bits(packed: Tensor) -> Tensor:
    """[N, 4] to [N, 32]: bit i of the little-endian word belongs to element i."""
    return _split(packed, 1, 8).transpose(1, 2).flatten(1)


def _decode_f32(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.float32))


def _decode_f16(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.float16))


def _decode_bf16(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.bfloat16))


def _decode_q8_0(blocks: Tensor, out: Tensor) -> None:
    torch.mul(blocks[:, 2:].view(torch.int8), _half(blocks, 0), out=out)


def _decode_q4_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(_nibbles(blocks[:, 2:])).sub_(8).mul_(_half(blocks, 0))


def _decode_q4_1(blocks: Tensor, out: Tensor) -> None:
    out.copy_(_nibbles(blocks[:, 4:])).mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _decode_q5_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(_nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << 4).sub_(16).mul_(_half(blocks, 0))


def _decode_q5_1(blocks: Tensor, out: Tensor) -> None:
    out.copy_(_nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << 4).mul_(_half(blocks, 0)).add_(
        _half(blocks, 2)
    )


def _decode_q2_k(blocks: Tensor, out: Tensor) -> None:
    scales = blocks[:, :16]
    levels = _split(blocks[:, 16:80].view(-1, 2, 32), 2, 4).reshape(-1, 16, 16)
    scale = _half(blocks, 80) * (scales & 15)
    offset = _half(blocks, 82) * (scales >> 4)
    _write_sub_blocks(out, levels, scale, offset)


def _decode_q3_k(blocks: Tensor, out: Tensor) -> None:
    high = _split(blocks[:, :32], 1, 8).reshape(-1, 16, 16)
    low = _split(blocks[:, 32:96].view(-1, 2, 32), 2, 4).reshape(-1, 16, 16)
    levels = (low | high << 2).view(torch.int8) - 4
    low_scales = _split(blocks[:, 96:104], 4, 2).flatten(1)
    high_scales = _split(blocks[:, 104:108], 2, 4).flatten(1)
    scales = (low_scales | high_scales << 4).view(torch.int8) - 32
    _write_sub_blocks(out, levels, _half(blocks, 108) * scales, None)


def _decode_q4_k(blocks: Tensor, out: Tensor) -> None:
    levels = _split(blocks[:, 16:].view(-1, 4, 32), 4, 2).reshape(-1, 8, 32)
    _write_sub_blocks(out, levels, *_scales_and_offsets(blocks))


def _decode_q5_k(blocks: Tensor, out: Tensor) -> None:
    low = _split(blocks[:, 48:].view(-1, 4, 32), 4, 2).reshape(-1, 8, 32)
    high = _split(blocks[:, 16:48], 1, 8)
    _write_sub_blocks(out, low | high << 4, *_scales_and_offsets(blocks))


def _decode_q6_k(blocks: Tensor, out: Tensor) -> None:
    low = _split(blocks[:, :128].view(-1, 2, 64), 4, 2).reshape(-1, 16, 16)
    high = _split(blocks[:, 128:192].view(-1, 2, 32), 2, 4).reshape(-1, 16, 16)
    levels = (low | high << 4).view(torch.int8) - 32
    scales = blocks[:, 192:208].view(torch.int8)
    _write_sub_blocks(out, levels, _half(blocks, 208) * scales, None)


def _scales_and_offsets(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and offset [N, 8] of the sub-blocks of Q4_K and Q5_K: 16 six-bit numbers packed into 12 bytes.

    The low six bits of bytes 0-3 and 4-7 are scales and offsets of sub-blocks 0-3. For sub-blocks 4-7 the low
    four bits are the halves of bytes 8-11 and the high two are the top bits of bytes 0-3 and 4-7.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([first & 63, (third & 15) | (first >> 6) << 4], dim=1)
    offsets = torch.cat([second & 63, (third >> 4) | (second >> 6) << 4], dim=1)
    return _half(blocks, 0) * scales, _half(blocks, 2) * offsets


def _write_sub_blocks(out: Tensor, levels: Tensor, scale: Tensor, offset: Tensor | None) -> None:
    """Writes levels * scale - offset: levels [N, S, L], scale and offset [N, S], S * L = block_size."""
    sub_blocks = out.view(levels.shape)
    sub_blocks.copy_(levels).mul_(scale.unsqueeze(-1))
    if offset is not None:
        sub_blocks.sub_(offset.unsqueeze(-1))


_DECODERS: Mapping[str, Callable[[Tensor, Tensor], None]] = {
    "F32": _decode_f32,
    "F16": _decode_f16,
    "BF16": _decode_bf16,
    "Q4_0": _decode_q4_0,
    "Q4_1": _decode_q4_1,
    "Q5_0": _decode_q5_0,
    "Q5_1": _decode_q5_1,
    "Q8_0": _decode_q8_0,
    "Q2_K": _decode_q2_k,
    "Q3_K": _decode_q3_k,
    "Q4_K": _decode_q4_k,
    "Q5_K": _decode_q5_k,
    "Q6_K": _decode_q6_k,
}
