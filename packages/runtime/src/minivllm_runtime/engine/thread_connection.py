"""A client's end of an engine in a thread of the same process."""

import asyncio

from minivllm_runtime.engine.connection import OnDeath, OnOutput
from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.engine.engine_thread import EngineThread
from minivllm_runtime.engine.output_mailbox import OutputMailbox
from minivllm_runtime.messages import Command, StepOutput


class ThreadConnection:
    """See EngineConnection."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._thread: EngineThread | None = None

    async def start(self, on_output: OnOutput, on_death: OnDeath) -> None:
        """Start the thread."""
        loop = asyncio.get_running_loop()
        mailbox = OutputMailbox()

        def output_from_thread(output: StepOutput) -> None:
            if mailbox.put(output):
                loop.call_soon_threadsafe(lambda: on_output(mailbox.take()))

        def death_from_thread(reason: str) -> None:
            loop.call_soon_threadsafe(on_death, reason)

        self._thread = EngineThread(self._core, output_from_thread, death_from_thread)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command for before the next step."""
        assert self._thread is not None, "start comes first"
        self._thread.send(command)

    async def stop(self) -> None:
        """Stop the thread after its current step."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.stop)
