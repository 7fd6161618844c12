"""The official `openai` client is served and gets its typed errors."""

import asyncio

import httpx
import openai
import pytest

from .byte_tokens import EOS, ids_of


@pytest.fixture(scope="module")
def api(module_server):
    with openai.OpenAI(
        base_url=f"{module_server.url}/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx.Client(trust_env=False),
    ) as api:
        yield api


def test_a_completion(server, api):
    server.play(ids_of("hello"))
    answer = api.completions.create(model="scripted", prompt="a", max_tokens=5)
    assert answer.object == "text_completion"
    assert answer.choices[0].text == "hello"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == 6


def test_every_kind_of_prompt(server, api):
    server.play(ids_of("hello"))
    for prompt in ("a", ["a", "b"], [97], [[97], [98]]):
        answer = api.completions.create(model="scripted", prompt=prompt, max_tokens=2, n=2)
        assert {choice.text for choice in answer.choices} == {"he"}


def test_a_stream_with_usage(server, api):
    server.play(ids_of("hi 😀", EOS))
    with api.completions.create(
        model="scripted", prompt="a", stream=True, stream_options={"include_usage": True}
    ) as stream:
        *chunks, last = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "hi 😀"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.choices == []
    assert last.usage.completion_tokens == 8


def test_fields_beyond_openais(server, api):
    server.play(ids_of("hello"))
    answer = api.completions.create(
        model="scripted",
        prompt="a",
        stop="l",
        extra_body={"include_stop_str_in_output": True, "top_k": 1, "min_tokens": 1},
    )
    assert answer.choices[0].text == "hel"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "other"}, openai.NotFoundError),
        ({"top_p": 1.1}, openai.BadRequestError),
        ({"max_tokens": 64}, openai.BadRequestError),
        ({"prompt": [-1]}, openai.BadRequestError),
        ({"prompt": [-1], "stream": True}, openai.BadRequestError),
    ],
)
def test_typed_errors(api, fields, error):
    with pytest.raises(error) as raised:
        api.completions.create(**{"model": "scripted", "prompt": "a", **fields})
    assert raised.value.body["message"] in str(raised.value)
    assert raised.value.request_id


def test_an_error_in_a_stream_is_raised(server, api):
    server.model.pace.hold()
    server.model.pace.allow(1)
    with api.completions.create(model="scripted", prompt="a", max_tokens=9, stream=True) as stream:
        next(stream)
        server.model.faults.append(RuntimeError("broken in the middle"))
        server.model.pace.release()
        with pytest.raises(openai.APIError, match="broken in the middle"):
            list(stream)


def test_a_failing_step_is_an_internal_server_error(server, api):
    server.model.faults.append(RuntimeError("broken once"))
    with pytest.raises(openai.InternalServerError, match="broken once"):
        api.completions.create(model="scripted", prompt="a")


def test_the_models(api):
    assert [model.id for model in api.models.list()] == ["scripted", "alias"]
    assert api.models.retrieve("alias").id == "alias"
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("other")


def test_many_at_once(server):
    server.play(ids_of("hello"))

    async def create_many():
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", http_client=httpx.AsyncClient(trust_env=False)
        ) as api:
            calls = (api.completions.create(model="scripted", prompt="a", max_tokens=5) for _ in range(40))
            return await asyncio.gather(*calls)

    assert {answer.choices[0].text for answer in asyncio.run(create_many())} == {"hello"}
