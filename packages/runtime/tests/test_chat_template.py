import json

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from minivllm_runtime.chat_template import ChatTemplate
from minivllm_runtime.errors import InvalidParameter, ModelLoadError

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CHATS = (
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "Be <b>brief</b> & 'kind'."}, {"role": "user", "content": "  spaces\n\n"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "日本"},
    ],
    [{"role": "user", "content": "{{ 7 * 7 }} {% raw %}"}],
    [{"role": "user", "content": ""}],
)
TEMPLATES = {
    "chatml": """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "blocks are trimmed": """
    {%- for m in messages %}
        {%- if m.role == 'system' %}
            {{ bos_token }}[S] {{ m.content | trim }}
        {%- else %}
    {{ m.content }}{{ eos_token }}
        {%- endif %}
    {%- endfor %}
    """,
    "json": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ {'b': 1} | tojson(sort_keys=true) }}",
    "loop controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}\n{% endgeneration %}{% endfor %}|",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "absent things": "{{ tools is none }}{{ documents is none }}{{ pad_token is defined }}{{ foo }}{{ messages[0].x }}",
    "date": "{{ strftime_now('%Y-%m-%d %Z') }}{{ messages | length }}",
    "methods": "{% for m in messages %}{{ m.content.split('a')[-1].strip().title() }}{{ m.get('x', 'd') }}{% endfor %}",
}


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_text_is_that_of_transformers(name, chat):
    (expected,), _ = render_jinja_template(
        [chat], chat_template=TEMPLATES[name], add_generation_prompt=True, **SPECIAL
    )
    assert ChatTemplate(TEMPLATES[name], SPECIAL).render(chat) == expected


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.nope.nope }}", "no attribute 'nope'"),
        ("{{ messages[0]['content'] + 1 }}", "refused the messages"),
        ("{{ 1 / (messages | length - 1) }}", "division by zero"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
    ],
)
def test_a_template_that_fails_blames_the_messages(template, words):
    with pytest.raises(InvalidParameter, match=words) as caught:
        ChatTemplate(template, SPECIAL).render([{"role": "user", "content": "hi"}])
    assert caught.value.param == "messages"


def test_a_template_that_is_none_is_refused_at_load():
    with pytest.raises(ModelLoadError, match="damaged at line 2"):
        ChatTemplate("ok\n{% for %}", SPECIAL)


def test_messages_are_not_changed():
    messages = [{"role": "user", "content": "hi"}]
    ChatTemplate("{% for m in messages %}{% set x = m.pop %}{% endfor %}", SPECIAL).render(messages)
    assert messages == [{"role": "user", "content": "hi"}]


ROLES = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"


def test_developers_are_the_system_to_templates_that_do_not_know_them():
    chat = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert ChatTemplate(ROLES, SPECIAL).render(chat) == "system:Be brief.;user:hi;"
    knowing = ROLES + "{# 'developer' is the new system #}"
    assert ChatTemplate(knowing, SPECIAL).render(chat) == "developer:Be brief.;user:hi;"
    assert chat[0]["role"] == "developer"


def test_a_template_gets_the_variables_it_asks_for():
    template = ChatTemplate("{{ enable_thinking | default(true) }} {{ names | join(',') }}", SPECIAL)
    assert template.render(CHATS[0]) == "True "
    assert template.render(CHATS[0], None, {"enable_thinking": False, "names": ["a", "b"]}) == "False a,b"


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt", "bos_token"])
def test_a_variable_replaces_nothing_that_the_server_sets(name):
    with pytest.raises(InvalidParameter, match=f"must not have {name!r}") as refusal:
        ChatTemplate(ROLES, SPECIAL).render(CHATS[0], None, {"a": 1, name: []})
    assert refusal.value.param == "chat_template_kwargs"


CALL_TEMPLATE = "{{ messages[0].tool_calls | tojson }}"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"x": [5]}', '{"x": [5]}'),
        ({"x": 5}, '{"x": 5}'),
        ('{"x": ', "{}"),
        ("", "{}"),
        ("[1]", "{}"),
        ("null", "{}"),
        ("[" * 5000 + "]" * 5000, "{}"),
    ],
    ids=["text", "object", "cut short", "empty", "array", "null", "too deep"],
)
def test_arguments_of_calls_are_an_object_whatever_the_model_wrote(arguments, shown):
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    text = ChatTemplate(CALL_TEMPLATE, SPECIAL).render([{"role": "assistant", "tool_calls": [call]}])
    assert text == f'[{{"id": "c", "function": {{"name": "f", "arguments": {shown}}}}}]'
    assert call["function"]["arguments"] == arguments


@pytest.mark.parametrize("calls", [None, [], [5], [{}], [{"function": {}}]])
def test_what_is_no_call_reaches_the_template_as_it_is(calls):
    text = ChatTemplate(CALL_TEMPLATE, SPECIAL).render([{"role": "assistant", "tool_calls": calls}])
    assert json.loads(text) == calls


def test_arguments_too_deep_for_a_template_refuse_the_messages():
    recursive = (
        "{% macro show(x) %}{{ show(x[0]) if x else '' }}{% endmacro %}{{ show(messages[0].content) }}"
    )
    content = []
    for _ in range(1000):
        content = [content]
    with pytest.raises(InvalidParameter, match="refused the messages"):
        ChatTemplate(recursive, SPECIAL).render([{"role": "user", "content": content}])
