"""Conversations: shape of answers and streams, contents, lengths and refusals."""

import asyncio

import httpx
import openai
import pytest

from .byte_tokens import BOS, EOS, byte_tokenizer, ids_of
from .harness import CHAT_PATH, CONVERSATION
from .wire_client import expect_error

SERVER = {"context": 64}
MARKED = "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"


def test_a_whole_answer(server):
    server.play(ids_of("hello", EOS))
    body = server.chat(max_tokens=9, model="alias").json()
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    assert body["model"] == "alias"
    assert isinstance(body["created"], int)
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "hello"
    assert {name: body["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        "prompt_tokens": 1,
        "completion_tokens": 6,
        "total_tokens": 7,
    }


@pytest.mark.parametrize("n", [1, 3])
def test_the_role_comes_first_once_per_choice_in_index_order(server, n):
    server.play(ids_of("hello"))
    stream = server.chat_stream(n=n, max_tokens=5).read_all()
    assert stream.is_done
    opening = [chunk["choices"][0] for chunk in stream.chunks[:n]]
    assert [choice["index"] for choice in opening] == list(range(n))
    assert all(choice["delta"] == {"role": "assistant", "content": ""} for choice in opening)
    rest = [choice for chunk in stream.chunks[n:] for choice in chunk["choices"]]
    assert all("role" not in choice["delta"] for choice in rest)
    for index in range(n):
        assert stream.text(index) == "hello"
        reasons = stream.finish_reasons(index)
        assert reasons[-1] == "length"
        assert set(reasons[:-1]) == {None}


def test_all_chunks_share_one_identity(server):
    stream = server.chat_stream(n=2, max_tokens=3).read_all()
    identities = {(c["id"], c["created"], c["model"], c["object"]) for c in stream.chunks}
    assert len(identities) == 1
    ((identity, _, _, kind),) = identities
    assert identity.startswith("chatcmpl-")
    assert kind == "chat.completion.chunk"


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_usage_is_not_streamed_unless_asked_for(server, options):
    stream = server.chat_stream(stream_options=options, max_tokens=2).read_all()
    assert all("usage" not in chunk and chunk["choices"] for chunk in stream.chunks)


def test_usage_is_the_last_chunk_and_that_of_a_whole_answer(server):
    server.play(ids_of("hi", EOS))
    body = {"n": 2, "max_tokens": 5}
    stream = server.chat_stream(stream_options={"include_usage": True}, **body).read_all()
    *chunks, last = stream.chunks
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    details = last["usage"].pop("prompt_tokens_details")
    whole = server.chat(**body).json()["usage"]
    assert set(details) == set(whole.pop("prompt_tokens_details"))
    assert last["usage"] == whole


def test_options_without_a_stream_are_refused(server):
    expect_error(server.chat(stream_options={"include_usage": True}), 400)


@pytest.mark.parametrize(
    "content", ["abc", [{"type": "text", "text": "abc"}], [{"type": "text", "text": t} for t in ("a", "bc")]]
)
def test_text_and_text_parts_are_the_same(server, content):
    answer = server.chat(messages=[{"role": "user", "content": content}], max_tokens=1)
    assert answer.json()["usage"]["prompt_tokens"] == 3


def test_the_prompt_is_what_the_template_makes_of_it(launch):
    server = launch(tokenizer=byte_tokenizer(chat_template=MARKED))
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "é"}]
    answer = server.chat(messages=messages, max_tokens=1)
    text = "system:s\nuser:é\n"
    assert answer.json()["usage"]["prompt_tokens"] == len([BOS, *text.encode()])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "developer", "content": "d"}, "system:d"),
        ({"role": "assistant", "content": None}, "assistant:"),
        ({"role": "assistant", "content": None, "refusal": "no"}, "assistant:no"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "assistant:no"),
        ({"role": "assistant", "content": "a", "refusal": None}, "assistant:a"),
    ],
    ids=str,
)
def test_messages_as_other_servers_and_clients_have_them(launch, message, text):
    server = launch(tokenizer=byte_tokenizer(chat_template=MARKED.replace("m.content", "m.content + ''")))
    answer = server.chat(messages=[message], max_tokens=1)
    assert answer.json()["usage"]["prompt_tokens"] == len([BOS, *f"{text}\n".encode()])


def test_the_template_gets_its_variables(launch):
    template = (
        MARKED + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    )
    server = launch(tokenizer=byte_tokenizer(chat_template=template))

    def num_tokens(**fields):
        return server.chat(max_tokens=1, **fields).json()["usage"]["prompt_tokens"]

    difference = num_tokens(chat_template_kwargs={"enable_thinking": False}) - num_tokens()
    assert difference == len("<think></think>")
    assert num_tokens(chat_template_kwargs={}) == num_tokens(chat_template_kwargs=None) == num_tokens()


@pytest.mark.parametrize(
    "variables", [5, [], {"messages": []}, {"bos_token": ""}, {f"v{i}": 1 for i in range(65)}], ids=repr
)
def test_variables_that_are_none_or_the_server_s_are_400(server, variables):
    error = expect_error(server.chat(max_tokens=1, chat_template_kwargs=variables), 400)
    assert error["param"] == "chat_template_kwargs"


@pytest.mark.parametrize(
    "field", [{"continue_final_message": True}, {"add_generation_prompt": False}], ids=str
)
def test_to_go_on_with_a_message_is_refused(server, field):
    error = expect_error(server.chat(max_tokens=1, **field), 400)
    assert error["param"] in field
    assert "not supported" in error["message"]
    allowed = {"continue_final_message": False, "add_generation_prompt": True}
    assert server.chat(max_tokens=1, **allowed).status_code == 200


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        {},
        "a",
        [5],
        [{}],
        [{"role": "user"}],
        [{"content": "a"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": {"type": "text", "text": "a"}}],
        [{"role": "nobody", "content": "a"}],
        [{"role": 5, "content": "a"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": ["a"]}],
        [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "input_audio"}]}],
    ],
    ids=repr,
)
@pytest.mark.parametrize("stream", [True, False])
def test_no_conversation_is_400(server, messages, stream):
    error = expect_error(server.chat(messages=messages, stream=stream), 400)
    assert error["param"] == "messages"


def test_a_lone_surrogate_is_400(server):
    content = b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    answer = server.client.post(CHAT_PATH, content=content, headers={"content-type": "application/json"})
    expect_error(answer, 400)


def test_a_model_without_a_template_refuses_conversations(launch):
    server = launch(tokenizer=byte_tokenizer(chat_template=None))
    assert "chat template" in expect_error(server.chat(), 400)["message"]
    assert server.works()


def test_a_template_that_refuses_is_400(launch):
    template = "{{ raise_exception('roles must alternate') }}"
    server = launch(tokenizer=byte_tokenizer(chat_template=template))
    assert "roles must alternate" in expect_error(server.chat(stream=True), 400)["message"]


@pytest.mark.parametrize(
    ("fields", "num_tokens"),
    [
        ({}, 63),
        ({"max_tokens": None}, 63),
        ({"max_tokens": 1}, 1),
        ({"max_tokens": 63}, 63),
        ({"max_completion_tokens": 2}, 2),
        ({"max_completion_tokens": 2, "max_tokens": 9}, 2),
        ({"max_completion_tokens": None, "max_tokens": 9}, 9),
        ({"max_completion_tokens": 9, "max_tokens": 1000}, 9),
    ],
)
def test_lengths(server, fields, num_tokens):
    server.play(ids_of("."))
    answer = server.chat(**fields)
    assert answer.json()["usage"]["completion_tokens"] == num_tokens
    assert answer.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1, 64, 1.5, "5", True])
def test_lengths_that_are_refused(server, name, value):
    error = expect_error(server.chat(**{name: value}), 400)
    if value == 64:
        assert all(number in error["message"] for number in ("length is 64 tokens", "has 1 tokens"))
        assert error["code"] == "context_length_exceeded"


def test_a_long_conversation_is_refused_with_its_numbers(server):
    messages = [{"role": "user", "content": "a" * 64}]
    error = expect_error(server.chat(messages=messages), 400)
    assert "this model's maximum context length is 64 tokens; the prompt has 64 tokens" in error["message"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    server.play(ids_of("."))
    shortest = server.chat(messages=[{"role": "user", "content": "a" * 63}])
    assert shortest.json()["usage"]["completion_tokens"] == 1


def test_stop_strings_never_leak(server):
    server.play(ids_of("one two three"))
    assert server.chat_choice(stop="two", max_tokens=13)["message"]["content"] == "one "
    stream = server.chat_stream(stop=["two"], max_tokens=13).read_all()
    assert stream.text() == "one "
    assert stream.finish_reasons()[-1] == "stop"


def test_no_half_character_is_sent(server):
    server.play(ids_of("é😀", EOS))
    stream = server.chat_stream(max_tokens=9).read_all()
    assert stream.text() == "é😀"
    assert all("\ufffd" not in str(chunk) for chunk in stream.chunks)


def test_null_is_the_default_and_unknown_fields_are_ignored(server):
    names = ("n", "temperature", "top_p", "stop", "stream", "stream_options", "seed", "max_completion_tokens")
    others = ("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "user")
    answer = server.chat(**dict.fromkeys((*names, *others, "response_format", "tools", "tool_choice")), foo=1)
    assert answer.status_code == 200


def test_a_failing_step_is_500_before_the_first_chunk(server):
    for stream in (True, False):
        server.model.faults.append(RuntimeError("broken once"))
        expect_error(server.chat(stream=stream, max_tokens=2), 500)
    assert server.works()


def test_a_client_that_leaves_frees_its_choices(server):
    server.play(ids_of("."))
    server.model.pace.hold()
    server.model.pace.allow(1)
    with server.chat_stream(n=3, max_tokens=60):
        pass
    server.model.pace.release()
    assert server.comes_to_rest()


class TestOfficialClient:
    @pytest.fixture
    def api(self, server):
        http_client = httpx.Client(trust_env=False)
        with openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=http_client
        ) as api:
            yield api

    def test_a_whole_answer(self, server, api):
        server.play(ids_of("hello", EOS))
        answer = api.chat.completions.create(model="scripted", messages=CONVERSATION, n=2, temperature=0)
        assert [choice.message.content for choice in answer.choices] == ["hello", "hello"]
        assert answer.choices[0].message.role == "assistant"
        assert answer.choices[0].message.refusal is None
        assert answer.usage.completion_tokens == 12

    def test_a_stream(self, server, api):
        server.play(ids_of("hi 😀", EOS))
        with api.chat.completions.create(
            model="scripted",
            messages=CONVERSATION,
            stream=True,
            stream_options={"include_usage": True},
        ) as stream:
            *chunks, last = list(stream)
        assert "".join(chunk.choices[0].delta.content for chunk in chunks) == "hi 😀"
        assert chunks[0].choices[0].delta.role == "assistant"
        assert last.usage.prompt_tokens == 1

    def test_the_accumulating_stream_helper(self, server, api):
        server.play(ids_of("hello", EOS))
        with api.chat.completions.stream(model="scripted", messages=CONVERSATION, n=2) as stream:
            completion = stream.get_final_completion()
        assert [choice.message.content for choice in completion.choices] == ["hello", "hello"]
        assert [choice.finish_reason for choice in completion.choices] == ["stop", "stop"]

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"model": "other"}, openai.NotFoundError),
            ({"messages": []}, openai.BadRequestError),
            ({"max_tokens": 64}, openai.BadRequestError),
            ({"top_p": 1.1, "stream": True}, openai.BadRequestError),
        ],
    )
    def test_typed_errors(self, api, fields, error):
        with pytest.raises(error):
            api.chat.completions.create(**{"model": "scripted", "messages": CONVERSATION, **fields})

    def test_many_at_once(self, server):
        server.play(ids_of("hello", EOS))

        async def read(api):
            stream = await api.chat.completions.create(model="scripted", messages=CONVERSATION, stream=True)
            return "".join([chunk.choices[0].delta.content async for chunk in stream])

        async def read_many():
            http_client = httpx.AsyncClient(trust_env=False)
            async with openai.AsyncOpenAI(
                base_url=f"{server.url}/v1", api_key="none", http_client=http_client
            ) as api:
                return await asyncio.gather(*(read(api) for _ in range(20)))

        assert set(asyncio.run(read_many())) == {"hello"}


def test_a_part_of_another_kind_is_told_what_a_part_is(server):
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]
    answer = server.client.post(CHAT_PATH, json={"messages": [{"role": "user", "content": parts}]})
    assert answer.status_code == 400
    assert "{'type': 'text', 'text': …}" in answer.json()["error"]["message"]
