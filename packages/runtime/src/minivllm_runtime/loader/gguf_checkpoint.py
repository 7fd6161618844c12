"""A model in one GGUF file, as llama.cpp writes it, seen under Hugging Face's names and layout."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.gguf_config import ROPE_FREQUENCY_FACTORS, read_gguf_config
from minivllm_runtime.loader.gguf_dequantize import dequantize
from minivllm_runtime.loader.gguf_reader import GGUFFile
from minivllm_runtime.loader.gguf_tokenizer import load_gguf_tokenizer
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer

_TOP_LEVEL: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_LAYER: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<module>\w+)\.(?P<kind>weight|bias)")


class GGUFCheckpoint:
    """A `.gguf` file.

    Attributes:
        config: Shape and features of the model.
        num_tensors: How many tensors `tensors` yields.

    Raises:
        ModelLoadError: the file is missing, damaged or cut short, or the model is of an unsupported kind.
    """

    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)
        self.config: ModelConfig = read_gguf_config(self._file)
        self._names = {
            name: _hugging_face_name(path, name)
            for name in self._file.tensors
            if name != ROPE_FREQUENCY_FACTORS
        }
        self.num_tensors = len(self._names)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor, one at a time, dequantized to float32."""
        for gguf_name, name in self._names.items():
            location = self._file.tensors[gguf_name]
            tensor = dequantize(self._file.read(location), location.format, location.shape)
            yield name, self._in_half_split_order(name, tensor)

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer that the file's metadata describes.

        Raises:
            ModelLoadError: the metadata is damaged or of an unknown kind.
        """
        return load_gguf_tokenizer(self._file)

    def _in_half_split_order(self, name: str, tensor: Tensor) -> Tensor:
        """Undoes llama.cpp's reordering of q and k, which it applies to the Llama family only."""
        if self.config.architecture != "llama":
            return tensor
        if ".q_proj." in name:
            return self._half_split(name, tensor, self.config.num_heads)
        if ".k_proj." in name:
            return self._half_split(name, tensor, self.config.num_kv_heads)
        return tensor

    def _half_split(self, name: str, rows: Tensor, num_heads: int) -> Tensor:
        """Rows of each head from the order of pairs (2i, 2i + 1) to that of pairs (i, i + head_dim / 2)."""
        expected = num_heads * self.config.head_dim
        if rows.shape[0] != expected:
            raise ModelLoadError(f"{self._file.path}: {name} has {rows.shape[0]} rows, expected {expected}")
        pairs = rows.view(num_heads, self.config.head_dim // 2, 2, *rows.shape[1:])
        return pairs.transpose(1, 2).reshape(rows.shape)


def _hugging_face_name(path: Path, name: str) -> str:
    match = _NAME.fullmatch(name)
    modules = _TOP_LEVEL if match and match["layer"] is None else _IN_LAYER
    if match is None or match["module"] not in modules:
        raise ModelLoadError(f"{path} has the tensor {name}, which is no part of a supported model")
    prefix = "" if match["layer"] is None else f"model.layers.{match['layer']}."
    return f"{prefix}{modules[match['module']]}.{match['kind']}"
