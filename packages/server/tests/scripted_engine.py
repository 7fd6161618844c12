"""An engine whose model follows a script: everything but the weights is real."""

from collections.abc import Sequence

import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer

from .wire.tape_model import Pace

IM_END = 256
BOS = 257
VOCAB_SIZE = 258


class ScriptedModel:
    """Makes every request generate the same ids, by position.

    Args:
        script: The ids that follow a prompt of `prompt_len` tokens; the last one repeats for ever.
        prompt_len: Tokens of the prompt.

    Attributes:
        pace: Of its steps.
        faults: Raised by the next steps, one each.
    """

    def __init__(self, script: Sequence[int], prompt_len: int) -> None:
        self.pace = Pace()
        self.faults: list[Exception] = []
        self._script = torch.tensor(script)
        self._first = prompt_len - 1

    def __call__(self, input_ids, positions, attention, wanted):
        self.pace.step()
        if self.faults:
            raise self.faults.pop(0)
        return (positions if wanted is None else positions[wanted])[:, None].to(torch.float32)

    def compute_logits(self, hidden):
        index = (hidden[:, 0].long() - self._first).clamp(0, len(self._script) - 1)
        logits = torch.zeros(len(hidden), VOCAB_SIZE)
        logits[torch.arange(len(hidden)), self._script[index]] = 100.0
        return logits


def byte_tokenizer(chat_template: str | None = None) -> Tokenizer:
    """Ids 0-255 are the bytes, then <|im_end|>, which ends a sequence, and <|im_start|>, which begins one."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    vocab = {chr(byte) if byte in printable else chr(next(others)): byte for byte in range(256)}
    backend = Backend(models.BPE(vocab=vocab | {"<|im_end|>": IM_END, "<|im_start|>": BOS}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_end|>", "<|im_start|>")])
    return Tokenizer(
        backend,
        special_tokens={"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"},
        chat_template=chat_template,
    )


def scripted_engine(
    script: str | Sequence[int],
    *,
    prompt_len: int = 1,
    context: int = 64,
    chat_template: str | None = None,
    **config,
) -> tuple[AsyncEngine, ScriptedModel]:
    """An engine of `script` (a text stands for its bytes), and its model."""
    ids = list(script.encode()) if isinstance(script, str) else list(script)
    model = ScriptedModel(ids, prompt_len)
    model_config = ModelConfig(
        architecture="llama",
        vocab_size=VOCAB_SIZE,
        hidden_size=1,
        intermediate_size=1,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        max_position_embeddings=context,
    )
    settings = {"block_size": 4, "num_blocks": 4 * -(-context // 4), "max_num_seqs": 8, **config}
    built = assemble_engine(
        EngineConfig(**settings),
        model,
        byte_tokenizer(chat_template),
        model_config,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return AsyncEngine(built), model
