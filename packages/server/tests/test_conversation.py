import asyncio

import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.conversation import Conversation

from .scripted_engine import IM_END, scripted_engine

HELLO = [*b"hello", IM_END]


def talk(*texts, max_tokens=9, system=None, context=64, stop_after=None):
    """What was written, and the conversation in the end."""
    written = []

    async def run():
        engine, _ = scripted_engine(HELLO, context=context, chat_template="{{ messages[-1].content[:1] }}")
        await engine.start()
        try:
            conversation = Conversation(
                engine, SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True), system
            )
            for text in texts:
                task = asyncio.current_task()

                def write(piece, task=task):
                    written.append(piece)
                    if stop_after is not None and len("".join(written)) >= stop_after:
                        task.cancel()

                try:
                    await conversation.say(text, write)
                except asyncio.CancelledError:
                    task.uncancel()
            return conversation, engine.stats()
        finally:
            await engine.shutdown()

    conversation, stats = asyncio.run(run())
    return "".join(written), conversation.messages, stats


def test_what_was_said_is_remembered():
    written, messages, _ = talk("a", "b", max_tokens=5, system="be kind")
    assert written == "hellohello"
    assert messages == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "hello"},
    ]


def test_an_answer_that_is_stopped_is_remembered_as_far_as_it_got():
    written, messages, _ = talk("a", max_tokens=4000, context=4096, stop_after=3)
    assert messages[-1] == {"role": "assistant", "content": written}
    assert "hello".startswith(written[:3])


def test_what_does_not_fit_is_not_remembered():
    async def run():
        engine, _ = scripted_engine(HELLO, context=8, chat_template="{{ messages[-1].content }}")
        await engine.start()
        try:
            conversation = Conversation(engine, SamplingParams(max_tokens=1))
            with pytest.raises(InvalidParameter):
                await conversation.say("a" * 100, print)
            return conversation.messages
        finally:
            await engine.shutdown()

    assert asyncio.run(run()) == []
