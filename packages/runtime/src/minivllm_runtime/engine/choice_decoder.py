"""From the token ids of one choice to what its reader sees."""

from minivllm_runtime.engine.detokenizer import IncrementalDetokenizer
from minivllm_runtime.engine.stop_strings import StopStringMatcher
from minivllm_runtime.engine.stop_tokens import named_stop_tokens
from minivllm_runtime.outputs import ChoiceDelta, FinishReasonName
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
        tokenizer: Its `token_bytes` make the text.
    """

    def __init__(self, index: int, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self._index = index
        self._named_stops = named_stop_tokens(params, tokenizer)
        self._shows_terminator = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        hidden = tokenizer.special_token_ids if params.skip_special_tokens else frozenset[int]()
        if self._shows_terminator:
            hidden -= self._named_stops.keys()
        self._detokenizer = IncrementalDetokenizer(tokenizer, hidden_token_ids=hidden)
        self._matcher = StopStringMatcher(params.stop)

    def push(
        self, token_ids: tuple[int, ...], finish_reason: FinishReason | None, num_cached_tokens: int
    ) -> ChoiceDelta:
        """Take the next ids of the choice.

        Args:
            token_ids: New ids, in order.
            finish_reason: STOP or LENGTH if the last of them ended the generation.
            num_cached_tokens: Passed on.

        Returns:
            The delta they make. If they complete a stop string it ends there with "stop", whatever
            `finish_reason` is, and has no ids after the completing one.
        """
        shown: list[str] = []
        stop: str | None = None
        num_used = 0
        for num_used, token_id in enumerate(token_ids, start=1):
            self._num_tokens += 1
            is_terminator = finish_reason is FinishReason.STOP and num_used == len(token_ids)
            if not is_terminator or self._shows_terminator:
                stop = self._read(self._detokenizer.push((token_id,)), shown)
            if stop is not None:
                break
        if stop is None and finish_reason is not None:
            stop = self._read(self._detokenizer.finish(), shown)
            shown.append(self._matcher.flush())
        reason, stop_reason = self._end(token_ids, finish_reason, stop)
        return ChoiceDelta(
            index=self._index,
            text="".join(shown),
            token_ids=token_ids[:num_used],
            finish_reason=reason,
            stop_reason=stop_reason,
            num_cached_tokens=num_cached_tokens,
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

    def _read(self, text: str, shown: list[str]) -> str | None:
        """Pass text through the stop strings into `shown`; return the stop string that ends it."""
        safe, stop = self._matcher.push(text, may_stop=self._num_tokens >= self._min_tokens)
        shown.append(safe)
        if stop is not None and self._shows_terminator:
            shown.append(stop)
        return stop
