"""Fewer, longer outputs for a reader who waits for whole results."""

from collections.abc import Iterable, Sequence

from minivllm_runtime.engine.join_outputs import join_outputs
from minivllm_runtime.messages import TokenOutput

_STEPS_BETWEEN = 32
"""Steps from one turn of a request to its next: the work that one of so many outputs costs is then little."""


class OutputJoiner:
    """Holds outputs of a request back until it is its turn, every so many steps, or it ends.

    Turns are spread over the steps: requests that start together would otherwise come out together, and the device
    would be idle while all their text is made.

    A request whose next tokens depend on its text, because a stop string may end it, must not be held.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, list[TokenOutput]]] = {}
        self._num_held = 1
        self._turn = 0

    def hold(self, request_ids: Iterable[str]) -> None:
        """Join the outputs of these requests from now on."""
        for request_id in request_ids:
            self._held[request_id] = (-self._num_held % _STEPS_BETWEEN, [])
            self._num_held += 1

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop what is held of these requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._held.pop(request_id, None)

    def push(self, outputs: Sequence[TokenOutput]) -> list[TokenOutput]:
        """Take the outputs of a step; returns what is not held any longer."""
        ready: list[TokenOutput] = []
        held_of, now = self._held.get, self._turn
        for output in outputs:  # fields by index: this runs once per request and step
            held = held_of(output[0])
            if held is None:
                ready.append(output)
                continue
            turn, parts = held
            parts.append(output)
            if output[2] is not None:  # why it ended
                ready.append(join_outputs(parts))
                del self._held[output[0]]
            elif turn == now:
                ready.append(join_outputs(parts))
                parts.clear()
        self._turn = (now + 1) % _STEPS_BETWEEN
        return ready
