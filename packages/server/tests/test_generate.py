import asyncio

import pytest

from minivllm_runtime.errors import InvalidParameter, RequestFailed
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.generate import Generated, generate_text

from .scripted_engine import scripted_engine

ENDLESS = "hello, "


def generate(engine, write, *, prompt="a", max_tokens=7, chat=False):
    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    return asyncio.run(generate_text(engine, prompt, params, chat=chat, write=write))


@pytest.mark.parametrize(("prompt", "chat"), [("a", False), ("abc", True)])
def test_the_text_comes_in_pieces_and_is_counted(prompt, chat):
    written = []
    engine, _ = scripted_engine(ENDLESS, chat_template="{{ messages[-1].content[:1] }}")
    generated = generate(engine, written.append, prompt=prompt, chat=chat)
    assert "".join(written) == ENDLESS
    assert generated.num_tokens == 7


@pytest.fixture
def held_after_a_token():
    """An engine that generates one token of an endless text; and its model."""
    engine, model = scripted_engine(ENDLESS)
    model.pace.hold()
    model.pace.allow(1)
    return engine, model


def test_a_text_that_is_broken_off_ends_its_line(held_after_a_token):
    engine, model = held_after_a_token
    written = []

    def write(piece):
        written.append(piece)
        asyncio.current_task().cancel()
        model.pace.release()

    with pytest.raises(asyncio.CancelledError):
        generate(engine, write, max_tokens=60)
    assert written == ["h", "\n"]


def test_an_engine_that_fails_ends_the_line_too(held_after_a_token):
    engine, model = held_after_a_token
    written = []

    def write(piece):
        written.append(piece)
        model.faults.append(RuntimeError("the step broke"))
        model.pace.release()

    with pytest.raises(RequestFailed, match="the step broke"):
        generate(engine, write, max_tokens=60)
    assert written == ["h", "\n"]


def test_what_does_not_fit_is_refused_before_anything_is_written():
    written = []
    with pytest.raises(InvalidParameter, match="context length is 64 tokens"):
        generate(scripted_engine(ENDLESS)[0], written.append, max_tokens=64)
    assert written == []


def test_speed_is_tokens_by_seconds():
    assert Generated(10, 2.0).tokens_per_s == 5
    assert Generated(0, 0.0).tokens_per_s == 0
