"""What a caller of this package can do wrong.

SchedulerError
├── InvalidConfig      a `SchedulerConfig` value outside its limits
├── InvalidRequest     a `Request` that no scheduler could serve
├── RequestTooLarge    a request that this scheduler's pool or context can never hold
├── QueueFull          no waiting room left now; the same request may be accepted later
├── DuplicateRequest   a request id that is still alive
├── UnexpectedResult   a step result that does not belong to the oldest outstanding step
├── InvalidRecording   a recording that is damaged, or of another format
└── ReplayDiverged     a replay that cannot follow its recording
"""


class SchedulerError(Exception):
    """Base of every error raised here."""


class InvalidConfig(SchedulerError, ValueError):
    """A configuration value is outside its limits; the message names both."""


class InvalidRequest(SchedulerError, ValueError):
    """A request is malformed on its own, whatever the pool; the message names value and limit."""


class RequestTooLarge(SchedulerError, ValueError):
    """A request would still not fit if it were alone: waiting cannot help it.

    Attributes:
        request_id: The refused request.
        num_prompt_tokens: Length of its prompt, in tokens.
        max_tokens: Output tokens it asked for.
        num_needed_tokens: Tokens it would need of the limited resource.
        limit_tokens: Tokens that the resource has.
        limited_by: "context" (max_model_len) or "pool" (KV blocks times block size).
    """

    def __init__(
        self, request_id: str, num_prompt_tokens: int, max_tokens: int, limit_tokens: int, limited_by: str
    ) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.num_needed_tokens = num_prompt_tokens + max_tokens - (1 if limited_by == "pool" else 0)
        self.limit_tokens = limit_tokens
        self.limited_by = limited_by
        super().__init__(
            f"request {request_id!r} needs {self.num_needed_tokens} tokens ({num_prompt_tokens} of prompt, "
            f"max_tokens {max_tokens}), the {limited_by} holds {limit_tokens}"
        )


class QueueFull(SchedulerError):
    """There is no waiting room for the requests of one `add`; none of them was accepted.

    Attributes:
        num_waiting: Requests waiting now.
        num_added: Requests that were to be added.
        max_num_waiting: How many may wait now: the limit, and the places free among the running ones.
    """

    def __init__(self, num_waiting: int, num_added: int, max_num_waiting: int) -> None:
        self.num_waiting = num_waiting
        self.num_added = num_added
        self.max_num_waiting = max_num_waiting
        super().__init__(
            f"{num_waiting} requests wait and {num_added} more exceed the limit of {max_num_waiting}"
        )


class DuplicateRequest(SchedulerError, ValueError):
    """A request id is already in use by a request that has not ended."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(f"request id {request_id!r} is already in use")


class UnexpectedResult(SchedulerError, ValueError):
    """A step result has the wrong step id or number of rows; nothing was changed."""


class InvalidRecording(SchedulerError, ValueError):
    """A recording is damaged or of another format; the message names line, field and value."""


class ReplayDiverged(SchedulerError):
    """A scheduler did something that the commands and ids of a recording do not fit to; the message names the pass."""
