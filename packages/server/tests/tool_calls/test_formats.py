import pytest

from minivllm_server.tool_calls.formats import parser_of
from minivllm_server.tool_calls.hermes import HermesParser
from minivllm_server.tool_calls.llama3_json import Llama3JsonParser

HERMES = "{% if tools %}answer with <tool_call>{json}</tool_call>{% endif %}"
LLAMA = '{% if tools %}answer with {"name": ..., "parameters": ...}{% endif %}'


@pytest.mark.parametrize(
    ("name", "template", "parser"),
    [
        ("auto", HERMES, HermesParser),
        ("auto", LLAMA, Llama3JsonParser),
        ("auto", "{{ messages }}", None),
        ("auto", "{{ tools }}{{ messages }}", None),
        ("auto", None, None),
        ("hermes", LLAMA, HermesParser),
        ("llama3_json", None, Llama3JsonParser),
    ],
)
def test_the_template_tells_unless_a_format_is_set(name, template, parser):
    assert parser_of(name, template) is parser
