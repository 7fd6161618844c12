"""/tokenize and /detokenize in vLLM's shapes."""

import pytest

from .byte_tokens import BOS, EOS, byte_tokenizer, ids_of
from .wire_client import expect_error

SERVER = {"context": 64}


@pytest.fixture
def post(server):
    def post(path, **body):
        return server.client.post(path, json=body)

    return post


@pytest.mark.parametrize("text", ["", "a", "hé 😀", "hi<|endoftext|>"])
def test_there_and_back(post, text):
    answer = post("/tokenize", prompt=text, model="alias").json()
    assert answer == {
        "tokens": ids_of(*(["hi", EOS] if text.startswith("hi") else [text])),
        "count": len(answer["tokens"]),
        "max_model_len": 64,
    }
    assert post("/detokenize", tokens=answer["tokens"]).json() == {"prompt": text}


def test_a_conversation_is_what_its_completion_would_be_charged(launch):
    template = "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    server = launch(tokenizer=byte_tokenizer(chat_template=template))
    messages = [{"role": "user", "content": [{"type": "text", "text": "é"}]}]
    tokens = server.client.post("/tokenize", json={"messages": messages}).json()["tokens"]
    assert tokens == ids_of(BOS, "user:é\n")
    assert server.chat(messages=messages, max_tokens=1).json()["usage"]["prompt_tokens"] == len(tokens)


def test_tools_and_variables_count_as_in_a_chat(launch):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson }}<tool_call>{{ mood }}"
    server = launch(context=512, tokenizer=byte_tokenizer(chat_template=template))
    body = {
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"mood": "glad"},
    }
    count = server.client.post("/tokenize", json=body).json()["count"]
    assert count > len("a<tool_call>glad")
    assert server.chat(**body, max_tokens=1).json()["usage"]["prompt_tokens"] == count


def test_more_tokens_than_the_context_are_counted(post):
    assert post("/tokenize", prompt="a" * 100).json()["count"] == 100


@pytest.mark.parametrize("add", [True, False, None])
def test_special_tokens_are_added_only_where_the_tokenizer_adds_some(post, add):
    assert post("/tokenize", prompt="a", add_special_tokens=add).json()["tokens"] == [97]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": None},
        {"prompt": 5},
        {"prompt": ["a"]},
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"prompt": "a", "messages": [{"role": "user", "content": "a"}]},
        {"prompt": "a", "add_special_tokens": 1},
        {"prompt": "a" * 5_000_000},
    ],
    ids=lambda body: repr(body)[:40],
)
def test_no_text_is_400(server, post, body):
    expect_error(post("/tokenize", **body), 400)
    assert server.works()


@pytest.mark.parametrize("tokens", [None, 5, "a", ["a"], [True], [1.0], [-1], [10**6], [2**70], [97] * 65])
def test_no_tokens_are_400(post, tokens):
    assert expect_error(post("/detokenize", tokens=tokens), 400)["param"] == "tokens"


def test_an_unknown_model_is_404(post):
    expect_error(post("/tokenize", prompt="a", model="other"), 404)
    expect_error(post("/detokenize", tokens=[97], model="other"), 404)
