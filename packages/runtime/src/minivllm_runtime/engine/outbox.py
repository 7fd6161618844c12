"""What a reader has not taken yet: one merged delta per choice, however slowly it reads."""

from collections import defaultdict
from io import StringIO

from minivllm_runtime.outputs import ChoiceDelta, TokenLogprob


class _MergedDelta:
    """The merged deltas of one choice; merging copies only the new part."""

    def __init__(self) -> None:
        self.text = StringIO()
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        self.last: ChoiceDelta | None = None

    def add(self, delta: ChoiceDelta) -> None:
        assert self.last is None or self.last.finish_reason is None, (
            "nothing follows the last delta of a choice"
        )
        self.text.write(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        self.prompt_logprobs = self.prompt_logprobs or delta.prompt_logprobs
        self.last = delta

    def merged(self) -> ChoiceDelta:
        last = self.last
        assert last is not None, "a pending entry has at least one delta"
        return ChoiceDelta(
            index=last.index,
            text=self.text.getvalue(),
            token_ids=tuple(self.token_ids),
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason,
            num_cached_tokens=last.num_cached_tokens,
            logprobs=None if last.logprobs is None else tuple(self.logprobs),
            prompt_logprobs=self.prompt_logprobs,
        )


class Outbox:
    """Deltas of one submission between the engine's pace and the reader's.

    Plain data without waiting: the owner wakes the reader by whatever means it has (an event of the loop, a
    step of the offline engine). Not for use by two threads at once.
    """

    def __init__(self) -> None:
        self._pending: defaultdict[int, _MergedDelta] = defaultdict(_MergedDelta)

    @property
    def is_empty(self) -> bool:
        """Whether `take` would return nothing."""
        return not self._pending

    def merge(self, delta: ChoiceDelta) -> None:
        """Add a delta; it joins what is pending of the same choice."""
        self._pending[delta.index].add(delta)

    def take(self) -> tuple[ChoiceDelta, ...]:
        """Return and forget what is pending: at most one delta per choice, by index."""
        pending, self._pending = self._pending, defaultdict(_MergedDelta)
        return tuple(pending[index].merged() for index in sorted(pending))
