"""`minivllm chat`: a conversation at the terminal."""

import asyncio
import contextlib
import sys
from collections.abc import Callable

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.conversation import Conversation

PROMPT = "> "
HELP = "Ctrl-C stops an answer, /clear forgets the conversation, /exit or Ctrl-D ends it, /help shows this."


def converse(
    engine: AsyncEngine, params: SamplingParams, *, system: str | None, write: Callable[[str], object]
) -> None:
    """Reads lines from standard input and answers each, until the input ends.

    Args:
        engine: Loaded, not started; shut down in the end.
        params: How answers are generated.
        system: What the model is told before everything else.
        write: Takes what is to be shown.
    """
    is_interactive = sys.stdin.isatty()
    if is_interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # gives `input` a history and keys to edit with
        write(HELP + "\n")
    with asyncio.Runner() as runner:
        runner.run(engine.start())
        conversation = Conversation(engine, params, system)
        try:
            while (line := _read_line(PROMPT if is_interactive else "", write)) not in {None, "/exit"}:
                if line == "/clear":
                    conversation.clear()
                elif line == "/help":
                    write(HELP + "\n")
                elif line:
                    _answer(runner, conversation, line, write)
        finally:
            runner.run(engine.shutdown())


def _answer(
    runner: asyncio.Runner, conversation: Conversation, line: str, write: Callable[[str], object]
) -> None:
    try:
        runner.run(conversation.say(line, write))
    except KeyboardInterrupt:
        write(" [stopped]")
    except InvalidParameter as error:
        write(f"[{error}]")
    write("\n")


def _read_line(prompt: str, write: Callable[[str], object]) -> str | None:
    """The next line without white space around it; None at the end. Ctrl-C at the prompt ends too."""
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        if prompt:
            write("\n")  # what follows on the terminal begins a line of its own
        return None
