"""What answers look like on the wire, whole or as the chunks of a stream, beside their choices."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.protocol.usage import Usage


@dataclass(frozen=True, slots=True)
class Identity:
    """What all chunks of an answer share."""

    id: str
    created: int
    model: str


def new_identity(prefix: str, model: str) -> Identity:
    """Returns an identity that no other answer has; its id starts with `prefix`."""
    return Identity(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), model)


def whole_answer(
    kind: str, identity: Identity, choices: Sequence[dict[str, Any]], usage: Usage
) -> dict[str, Any]:
    """Returns an answer that is not streamed, as a JSON object; `kind` is its `object`."""
    return {**_shared(kind, identity), "choices": choices, "usage": usage.model_dump()}


class AnswerChunks:
    """The chunks of a streamed answer, as JSON objects.

    Args:
        kind: Their `object`.
        identity: What all chunks share.
        choices_of: The entries of `choices` that a delta makes, one chunk each.
        opening: Entries of `choices` that come before every delta, one chunk each.
        usage: What was generated, asked for once at the end; None if the client did not ask for usage.
    """

    def __init__(
        self,
        kind: str,
        identity: Identity,
        choices_of: Callable[[ChoiceDelta], Iterable[dict[str, Any]]],
        *,
        opening: Iterable[dict[str, Any]] = (),
        usage: Callable[[], Usage] | None = None,
    ) -> None:
        self._shared = _shared(kind, identity)
        # A client that asked for usage finds the field in every chunk.
        self._usage_so_far = {} if usage is None else {"usage": None}
        self._choices_of = choices_of
        self._opening = opening
        self._usage = usage

    def opening_chunks(self) -> Iterator[dict[str, Any]]:
        """Yields the chunks that come before every delta."""
        return map(self._chunk, self._opening)

    def chunks(self, deltas: Iterable[ChoiceDelta]) -> Iterator[dict[str, Any]]:
        """Yields the chunks of new deltas."""
        for delta in deltas:
            for choice in self._choices_of(delta):
                yield self._chunk(choice)

    def closing_chunks(self) -> Iterator[dict[str, Any]]:
        """Yields the usage chunk, if it was asked for."""
        if self._usage is not None:
            yield {**self._shared, "choices": [], "usage": self._usage().model_dump()}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {**self._shared, "choices": [choice], **self._usage_so_far}


def _shared(kind: str, identity: Identity) -> dict[str, Any]:
    return {"id": identity.id, "object": kind, "created": identity.created, "model": identity.model}
