"""From prompts and sampling parameters to requests that the engine can serve, or a refusal."""

import secrets
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from minivllm_runtime.engine.stop_tokens import named_stop_tokens
from minivllm_runtime.errors import ContextLengthExceeded, InvalidParameter
from minivllm_runtime.messages import EngineRequest
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_runtime.tokenizer import Tokenizer

SEED_RANGE = 2**64


class InputProcessor:
    """Turns text into ids and ids into engine requests; refuses what can never be served.

    Args:
        tokenizer: Encodes prompts; names end-of-sequence and special tokens.
        model_config: Its `vocab_size`, the rows of the embedding, bounds every id.
        max_model_len: Most tokens of one request, prompt and output together, as far as context and KV pool allow.
    """

    def __init__(self, tokenizer: Tokenizer, model_config: ModelConfig, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = model_config.vocab_size
        self._max_model_len = max_model_len
        # Programs that shorten a conversation when it is too long look for these words.
        self._limit_text = f"this model's maximum context length is {max_model_len} tokens"

    def encode(self, text: str) -> tuple[int, ...]:
        """Encode a prompt as the model's tokenizer does, special tokens included.

        Raises:
            InvalidParameter: the text cannot fit (found without encoding it), has a lone surrogate, or gives
                no ids.
        """
        return self._bos_if_empty(self.tokenize(text))

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """The ids of a text, none for an empty one; raises what `encode` raises otherwise."""
        self._check_size("prompt", text)
        return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of some ids.

        Raises:
            InvalidParameter: an id outside the embedding, or more ids than the context has room for.
        """
        if len(token_ids) > self._max_model_len:
            raise InvalidParameter(
                "tokens", f"{len(token_ids)} tokens; the context has at most {self._max_model_len}"
            )
        self._check_ids("tokens", token_ids)
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """Render a conversation and encode it; see `Tokenizer.render_chat`.

        Raises:
            InvalidParameter: the template refuses the conversation, or its text cannot fit (found without
                encoding it) or has a lone surrogate.
        """
        text = self._tokenizer.render_chat(messages, tools, variables)
        self._check_size("messages", text)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def make_requests(
        self,
        request_id: str,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        default_max_tokens: int | None = None,
        tenant: str = "",
    ) -> tuple[EngineRequest, ...]:
        """Make the requests of one submission, prompt-major: all choices of the first prompt come first.

        Args:
            request_id: Unique inside the engine; the requests are called `{request_id}-{prompt}-{choice}`.
            prompts: Token ids of each prompt; an empty one becomes the beginning-of-sequence token.
            params: Applies to every prompt. Unseeded prompts get one random seed each.
            default_max_tokens: Where `params.max_tokens` is None, generate at most this many tokens; None
                generates all that there is room for.
            tenant: Whose requests they are.

        Raises:
            InvalidParameter: no prompt, an id outside the embedding, or prompt and max_tokens exceed context or pool.
        """
        if not prompts:
            raise InvalidParameter("prompt", "there must be at least one prompt")
        template = self._template(params, tenant)
        requests: list[EngineRequest] = []
        for index, prompt in enumerate(prompts):
            prompt_token_ids = self._bos_if_empty(prompt)
            max_tokens = self._resolve_max_tokens(len(prompt_token_ids), params, default_max_tokens)
            self._check_ids("prompt", prompt_token_ids)
            leader = replace(
                template,
                request_id=f"{request_id}-{index}-0",
                prompt_token_ids=prompt_token_ids,
                max_tokens=max_tokens,
                seed=secrets.randbits(64) if params.seed is None else params.seed % SEED_RANGE,
                group=f"{request_id}-{index}" if params.n > 1 else None,
            )
            requests.append(leader)
            requests += (
                replace(
                    leader,
                    request_id=f"{request_id}-{index}-{choice}",
                    choice=choice,
                    prompt_logprobs=None,  # the leader's are those of all
                )
                for choice in range(1, params.n)
            )
        return tuple(requests)

    def _template(self, params: SamplingParams, tenant: str) -> EngineRequest:
        """What the requests of all prompts and choices have in common."""
        self._check_ids("logit_bias", tuple(params.logit_bias))
        return EngineRequest(
            request_id="",
            prompt_token_ids=(),
            max_tokens=0,
            min_tokens=params.min_tokens,
            stop_token_ids=self._stop_token_ids(params),
            temperature=float(params.temperature),
            top_k=params.top_k if 0 < params.top_k < self._vocab_size else 0,
            top_p=float(params.top_p),
            min_p=float(params.min_p),
            repetition_penalty=float(params.repetition_penalty),
            presence_penalty=float(params.presence_penalty),
            frequency_penalty=float(params.frequency_penalty),
            logit_bias=tuple((token_id, float(bias)) for token_id, bias in params.logit_bias.items()),
            logprobs=params.logprobs,
            prompt_logprobs=params.prompt_logprobs,
            json_schema=params.output_schema,
            priority=params.priority,
            tenant=tenant,
            cache_salt=params.cache_salt,
        )

    def _stop_token_ids(self, params: SamplingParams) -> frozenset[int]:
        named = named_stop_tokens(params, self._tokenizer)
        self._check_ids("stop_token_ids", tuple(named))
        eos_token_ids = frozenset[int]() if params.ignore_eos else self._tokenizer.eos_token_ids
        return frozenset(named) | eos_token_ids

    def _bos_if_empty(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        if token_ids:
            return tuple(token_ids)
        bos_token_id = self._tokenizer.bos_token_id
        if bos_token_id is None:
            raise InvalidParameter(
                "prompt", "the prompt is empty and the tokenizer has no beginning-of-sequence token"
            )
        return (bos_token_id,)

    def _check_size(self, param: str, text: str) -> None:
        """Refuse a text that is too long for the context however well it is encoded, without encoding it."""
        num_bytes = len(text.encode(errors="surrogatepass"))
        longest_token_bytes = self._tokenizer.longest_token_bytes
        if longest_token_bytes is None:
            return
        limit_bytes = self._max_model_len * longest_token_bytes
        if num_bytes > limit_bytes:
            raise ContextLengthExceeded(
                param,
                f"{self._limit_text}, which cover at most {limit_bytes} bytes; the prompt has {num_bytes} bytes",
            )

    def _check_ids(self, name: str, token_ids: Sequence[int]) -> None:
        if not token_ids:
            return
        last = self._vocab_size - 1
        try:  # half the time of min and max, which a batch of long prompts waits for
            is_good = np.asarray(array("I", token_ids)).max() <= last
        except OverflowError:
            is_good = False
        if not is_good:
            wrong = next(token_id for token_id in token_ids if not 0 <= token_id <= last)
            raise InvalidParameter(name, f"{name} has the token id {wrong}; the model's ids are 0 to {last}")

    def _resolve_max_tokens(
        self, num_prompt_tokens: int, params: SamplingParams, default_max_tokens: int | None
    ) -> int:
        """The number of tokens to generate; prompt and output are then known to fit."""
        room = self._max_model_len - num_prompt_tokens
        if params.max_tokens is not None:
            if params.max_tokens > room:
                raise ContextLengthExceeded(
                    "max_tokens",
                    f"{self._limit_text}; the prompt has {num_prompt_tokens} tokens, "
                    f"and max_tokens is {params.max_tokens}",
                )
            return params.max_tokens
        if room < 1:
            raise ContextLengthExceeded(
                "prompt",
                f"{self._limit_text}; the prompt has {num_prompt_tokens} tokens, "
                "which leaves no room to generate",
            )
        max_tokens = room if default_max_tokens is None else min(default_max_tokens, room)
        if params.min_tokens > max_tokens:
            raise InvalidParameter(
                "min_tokens",
                f"min_tokens ({params.min_tokens}) is above the {max_tokens} tokens that can be generated",
            )
        return max_tokens
