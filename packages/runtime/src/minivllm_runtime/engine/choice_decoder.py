"""From the token ids of one choice to what its reader sees."""

from minivllm_runtime.engine.detokenizer import IncrementalDetokenizer
from minivllm_runtime.engine.logprob_decoder import decode_logprob, decode_prompt_logprobs
from minivllm_runtime.engine.stop_strings import StopStringMatcher
from minivllm_runtime.engine.stop_tokens import named_stop_tokens
from minivllm_runtime.messages import TokenOutput
from minivllm_runtime.outputs import ChoiceDelta, FinishReasonName, TokenLogprob
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_scheduler import FinishReason


class ChoiceDecoder:
    """Text, stop strings and finish reason of one choice.

    The token that ended generation counts as generated, but its text is shown only on request
    (`include_stop_str_in_output`), and then for an end-of-sequence token only where special tokens are shown
    at all.

    Args:
        index: Position of the choice in its submission.
        params: As given by the caller.
        prompt_token_ids: Of its prompt.
        tokenizer: Its `token_bytes` make the text.
    """

    def __init__(
        self, index: int, params: SamplingParams, prompt_token_ids: tuple[int, ...], tokenizer: Tokenizer
    ) -> None:
        self._index = index
        self._prompt_token_ids = prompt_token_ids
        self._tokenizer = tokenizer
        self._named_stops = named_stop_tokens(params, tokenizer)
        self._shows_terminator = params.include_stop_str_in_output
        self._wants_logprobs = params.logprobs is not None
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        self._num_chars = 0
        self._special_token_ids = (
            tokenizer.special_token_ids if params.skip_special_tokens else frozenset[int]()
        )
        hidden = self._special_token_ids
        if self._shows_terminator:
            hidden -= self._named_stops.keys()
        self._detokenizer = IncrementalDetokenizer(tokenizer, hidden_token_ids=hidden)
        self._matcher = StopStringMatcher(params.stop)
        self._reads_each_token = bool(params.stop) or self._wants_logprobs

    def push(self, output: TokenOutput) -> ChoiceDelta:
        """Take the next output of the choice, of any number of ids.

        Args:
            output: With STOP or LENGTH if the last of its ids ended the generation.

        Returns:
            The delta they make. If they complete a stop string it ends there with "stop", whatever the output says,
            and has no ids after the completing one.
        """
        return self._push_each(output) if self._reads_each_token else self._push_all(output)

    def _push_all(self, output: TokenOutput) -> ChoiceDelta:
        """Where nobody asks which token brought which character."""
        token_ids, finish_reason = output.token_ids, output.finish_reason
        hides_last = finish_reason is FinishReason.STOP and not self._shows_terminator
        text = self._detokenizer.push(token_ids[:-1] if hides_last else token_ids)
        if finish_reason is not None:
            text += self._detokenizer.finish()
        reason, stop_reason = self._end(token_ids, finish_reason, None)
        return ChoiceDelta(
            self._index,
            text,
            token_ids,
            reason,
            stop_reason,
            output.num_cached_tokens,
            None,
            self._prompt_logprobs(output),
        )

    def _push_each(self, output: TokenOutput) -> ChoiceDelta:
        token_ids, finish_reason = output.token_ids, output.finish_reason
        shown: list[str] = []
        offsets: list[int] = []
        stop: str | None = None
        for place, token_id in enumerate(token_ids, start=1):
            offsets.append(self._num_chars)
            is_terminator = finish_reason is FinishReason.STOP and place == len(token_ids)
            if not is_terminator or self._shows_terminator:
                stop = self._read(self._detokenizer.push((token_id,)), len(offsets), shown)
            if stop is not None:
                break
        self._num_tokens += len(offsets)
        if stop is None and finish_reason is not None:
            stop = self._read(self._detokenizer.finish(), 0, shown)
            shown.append(self._matcher.flush())
        reason, stop_reason = self._end(token_ids, finish_reason, stop)
        return ChoiceDelta(
            index=self._index,
            text="".join(shown),
            token_ids=token_ids[: len(offsets)],
            finish_reason=reason,
            stop_reason=stop_reason,
            num_cached_tokens=output.num_cached_tokens,
            logprobs=self._logprobs(output, offsets),
            prompt_logprobs=self._prompt_logprobs(output),
        )

    def _end(
        self, token_ids: tuple[int, ...], finish_reason: FinishReason | None, stop: str | None
    ) -> tuple[FinishReasonName | None, str | int | None]:
        """Finish reason and stop reason; a stop string comes before what the engine says."""
        if stop is not None:
            return "stop", stop
        if finish_reason is FinishReason.STOP:
            return "stop", self._named_stops.get(token_ids[-1])
        return ("length" if finish_reason is FinishReason.LENGTH else None), None

    def _logprobs(self, output: TokenOutput, offsets: list[int]) -> tuple[TokenLogprob, ...] | None:
        if not self._wants_logprobs:
            return None
        rows = zip(
            output.token_ids, output.logprobs or (), offsets, strict=False
        )  # what a stop string cuts has none
        return tuple(decode_logprob(*row, self._tokenizer) for row in rows)

    def _prompt_logprobs(self, output: TokenOutput) -> tuple[TokenLogprob, ...] | None:
        if output.prompt_logprobs is None:
            return None
        return decode_prompt_logprobs(
            self._prompt_token_ids, output.prompt_logprobs, self._tokenizer, self._special_token_ids
        )

    def _read(self, text: str, num_new_tokens: int, shown: list[str]) -> str | None:
        """Pass text through the stop strings into `shown`; return the stop string that ends it."""
        self._num_chars += len(text)
        may_stop = self._num_tokens + num_new_tokens >= self._min_tokens
        safe, stop = self._matcher.push(text, may_stop=may_stop)
        shown.append(safe)
        if stop is not None and self._shows_terminator:
            shown.append(stop)
        return stop
