"""A model that reads its answers from a tape, at the pace a test sets."""

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence

import torch

LONGEST_HOLD_S = 120
"""For a test that fails with its model held."""

PEAK = 100.0
"""Logit of a tape's token; all other tokens have minus as much."""

Entry = int | Mapping[int, float]


class Pace:
    """How many steps the model may take: any number, until `hold` is called."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # its lock can be taken again by who has it
        self._allowed = math.inf
        self._num_begun = 0
        self._num_waiting = 0

    @property
    def num_begun(self) -> int:
        """Steps that the engine began, the one that is held included."""
        return self._num_begun

    def hold(self) -> None:
        """No further step."""
        with self._changed:
            self._allowed = 0

    def allow(self, num_steps: float) -> None:
        """So many steps more."""
        with self._changed:
            self._allowed += num_steps
            self._changed.notify_all()

    def let_go_on(self) -> None:
        """A step that is held may be taken; none that begins later."""
        with self._changed:
            if self._allowed < self._num_waiting:
                self.allow(1)

    def release(self) -> None:
        """Any number of steps."""
        self.allow(math.inf)

    def step(self) -> None:
        """Called by the model: waits until a step is allowed."""
        with self._changed:
            self._num_begun += 1
            self._num_waiting += 1
            assert self._changed.wait_for(lambda: self._allowed > 0, LONGEST_HOLD_S), "the model was held"
            self._num_waiting -= 1
            self._allowed -= 1


class TapeModel:
    """A prompt of L tokens is followed by what the tape has at L, L + 1, …; its last entry repeats for ever.

    Attributes:
        pace: Of its steps.
        faults: The next steps raise these, one each.
        broken: Every step raises this.
    """

    def __init__(self, vocab_size: int) -> None:
        self.pace = Pace()
        self.faults: deque[BaseException] = deque()
        self.broken: BaseException | None = None
        self._vocab_size = vocab_size
        self.play([ord(".")])

    def play(self, script: Sequence[Entry], *, prompt_len: int = 1) -> None:
        """Put `script` on the tape so that it follows a prompt of `prompt_len` tokens.

        An entry is a token id, or the logits of some.
        """
        tape = torch.full((prompt_len + len(script), self._vocab_size), -PEAK)
        for position, entry in enumerate(script, start=prompt_len):
            for token_id, logit in (entry if isinstance(entry, Mapping) else {entry: PEAK}).items():
                tape[position, token_id] = logit
        self._tape = tape

    def __call__(self, input_ids, positions, attention, wanted):
        self.pace.step()
        if self.broken is not None:
            raise self.broken
        if self.faults:
            raise self.faults.popleft()
        return (positions if wanted is None else positions[wanted])[:, None].float()

    def compute_logits(self, hidden):
        following = hidden[:, 0].long() + 1
        return self._tape[following.clamp(max=len(self._tape) - 1)]
