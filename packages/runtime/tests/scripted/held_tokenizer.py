"""A tokenizer that keeps the first grammar from being compiled for as long as a test wants."""

import threading

from minivllm_runtime.tokenizer import Tokenizer

from .byte_level import byte_level_tokenizer

_PATIENCE_S = 30


class HeldTokenizer(Tokenizer):
    """Tells what its tokens are when `may_compile` is set, which a test must do before it ends; then raises `error`."""

    def __init__(self) -> None:
        super().__init__(byte_level_tokenizer().backend, special_tokens={"eos_token": "<|im_end|>"})
        self.may_compile = threading.Event()
        self.error: Exception | None = None

    def token_bytes(self, token_id: int) -> bytes:
        assert self.may_compile.wait(_PATIENCE_S)
        if self.error is not None:
            raise self.error
        return super().token_bytes(token_id)
