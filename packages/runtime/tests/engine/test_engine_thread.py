"""The engine's thread: what it answers, how it stops and how it dies."""

from queue import SimpleQueue

import pytest

from minivllm_runtime.engine.engine_thread import EngineThread
from minivllm_runtime.messages import Accepted, AddRequests, EngineRequest

from ..reference.tiny_transformers import engine_of, reference_model

REQUEST = EngineRequest(request_id="a", prompt_token_ids=(3, 1, 4), max_tokens=5, temperature=0.0)


def test_answers_come_first_then_tokens_and_stop_is_no_death():
    outputs, deaths = SimpleQueue(), []
    thread = EngineThread(engine_of(reference_model("llama 4/2 heads")).core, outputs.put, deaths.append)
    thread.send(AddRequests("a", (REQUEST,)))
    thread.start()
    assert outputs.get(timeout=30).answers == (Accepted("a"),)
    token_ids = []
    while len(token_ids) < REQUEST.max_tokens:
        for output in outputs.get(timeout=30).tokens:
            token_ids += output.token_ids
    thread.stop()
    thread.stop()
    assert deaths == []


@pytest.mark.parametrize("error", [OSError("nobody listens"), SystemExit("nobody listens")])
def test_a_fault_outside_a_step_is_a_death_with_its_reason(error):
    def refuse(output):
        raise error

    deaths = SimpleQueue()
    thread = EngineThread(engine_of(reference_model("llama 4/2 heads")).core, refuse, deaths.put)
    thread.start()
    thread.send(AddRequests("a", (REQUEST,)))
    assert deaths.get(timeout=30) == f"{type(error).__name__}: nobody listens"
    thread.stop()
    assert deaths.empty()


def test_a_thread_that_was_never_started_can_be_stopped():
    deaths = []
    EngineThread(engine_of(reference_model("llama 4/2 heads")).core, print, deaths.append).stop()
    assert deaths == []
