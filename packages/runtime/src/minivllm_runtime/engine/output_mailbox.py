"""What an engine thread has computed and an event loop has not come round to take."""

import threading

from minivllm_runtime.engine.messages import StepOutput, TokenLogprobs, TokenOutput


class OutputMailbox:
    """Joins outputs until they are taken, so that a loop that was held up finds one, not a queue of them.

    One thread puts, one takes. Who puts into an empty mailbox wakes the taker; nobody else need.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: StepOutput | _Joined | None = None

    def put(self, output: StepOutput) -> bool:
        """Add an output. Returns whether the mailbox was empty."""
        with self._lock:
            was_empty = self._waiting is None
            match self._waiting:
                case None:  # the usual case: taken before the next one comes
                    self._waiting = output
                case _Joined() as joined:
                    joined.add(output)
                case first:
                    self._waiting = _Joined(first)
                    self._waiting.add(output)
            return was_empty

    def take(self) -> StepOutput:
        """Take all that was put since the last time, as one output; there must be something."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
        assert waiting is not None, "only who was woken takes"
        return waiting.output() if isinstance(waiting, _Joined) else waiting


class _Joined:
    """Outputs of steps, in order, as one; adding one more costs no more than what is new in it."""

    def __init__(self, first: StepOutput) -> None:
        self._tokens: dict[str, _JoinedTokens] = {}
        self._answers = list(first.answers)
        self._queue_times_s = list(first.queue_times_s)
        self._stats = first.stats
        self._add_tokens(first)

    def add(self, output: StepOutput) -> None:
        self._answers += output.answers
        self._queue_times_s += output.queue_times_s
        self._stats = output.stats
        self._add_tokens(output)

    def _add_tokens(self, output: StepOutput) -> None:
        for tokens in output.tokens:
            joined = self._tokens.get(tokens.request_id)
            if joined is None:
                self._tokens[tokens.request_id] = _JoinedTokens(tokens)
            else:
                joined.add(tokens)

    def output(self) -> StepOutput:
        tokens = tuple(joined.output() for joined in self._tokens.values())
        return StepOutput(tuple(self._answers), tokens, self._stats, tuple(self._queue_times_s))


class _JoinedTokens:
    """Outputs of one request."""

    def __init__(self, first: TokenOutput) -> None:
        self._first = self._last = first
        self._token_ids = list(first.token_ids)
        self._logprobs: list[TokenLogprobs] = list(first.logprobs or ())

    def add(self, output: TokenOutput) -> None:
        self._token_ids += output.token_ids
        self._logprobs += output.logprobs or ()
        self._last = output

    def output(self) -> TokenOutput:
        return self._last._replace(
            token_ids=tuple(self._token_ids),
            logprobs=None if self._first.logprobs is None else tuple(self._logprobs),
            prompt_logprobs=self._first.prompt_logprobs,
        )
