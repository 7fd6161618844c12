"""Fewer, longer outputs for a reader who waits for whole results."""

from collections.abc import Iterable, Sequence

from minivllm_runtime.engine.join_outputs import join_outputs
from minivllm_runtime.messages import TokenOutput

_MOST_OUTPUTS = 32
"""Outputs joined into one: the work that one output costs is then little, and no step has much to catch up with."""


class OutputJoiner:
    """Holds outputs of a request back until there are many of them, or it ends.

    A request whose next tokens depend on its text, because a stop string may end it, must not be held.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[TokenOutput]] = {}

    def hold(self, request_ids: Iterable[str]) -> None:
        """Join the outputs of these requests from now on."""
        self._held.update((request_id, []) for request_id in request_ids)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop what is held of these requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._held.pop(request_id, None)

    def push(self, outputs: Sequence[TokenOutput]) -> list[TokenOutput]:
        """Take the outputs of a step; returns what is not held any longer."""
        ready: list[TokenOutput] = []
        for output in outputs:
            held = self._held.get(output[0])
            if held is None:
                ready.append(output)
                continue
            held.append(output)
            if output.finish_reason is not None:
                ready.append(join_outputs(self._held.pop(output.request_id)))
            elif len(held) == _MOST_OUTPUTS:
                ready.append(join_outputs(held))
                held.clear()
        return ready
