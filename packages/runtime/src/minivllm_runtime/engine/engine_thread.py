"""An engine core in a thread of its own: commands go in, step outputs come out."""

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.messages import Command, StepOutput

_log = logging.getLogger(__name__)


class EngineThread:
    """Steps the core while it has work and sleeps while it has none.

    Both callbacks run in the engine's thread. `on_death` is called once if the loop ends for any reason but `stop`:
    a fatal error of the core, or an exception nobody expected.
    """

    def __init__(
        self, core: EngineCore, on_output: Callable[[StepOutput], None], on_death: Callable[[str], None]
    ) -> None:
        self._core = core
        self._on_output = on_output
        self._on_death = on_death
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="minivllm-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command; it is carried out before the next step."""
        self._commands.put(command)

    def stop(self) -> None:
        """End the loop after the current step and wait for the thread."""
        self._stopping = True
        self._commands.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
            reason = self._core.fatal_error
        except BaseException as error:  # whatever it is, those who wait must hear of it
            _log.exception("the engine thread died")
            reason = f"{type(error).__name__}: {error}"
        if reason is not None:
            self._on_death(reason)

    def _serve(self) -> None:
        """Carry out commands and steps until `stop`, or until the core is dead."""
        while not self._stopping and self._core.fatal_error is None:
            commands = self._take_commands(wait=not self._core.has_work)
            if commands:  # answered now, not when the step is over
                self._on_output(StepOutput(self._core.execute(commands), (), self._core.stats()))
            if self._core.has_work:
                tokens = self._core.step()
                answers, queue_times_s = self._core.take_answers(), self._core.take_queue_times()
                self._on_output(StepOutput(answers, tokens, self._core.stats(), queue_times_s))

    def _take_commands(self, *, wait: bool) -> list[Command]:
        """Everything queued so far; with `wait`, at least one entry."""
        taken = [self._commands.get()] if wait else []
        try:
            while True:
                taken.append(self._commands.get_nowait())
        except Empty:
            return [command for command in taken if command is not None]
