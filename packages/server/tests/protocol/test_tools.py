import pytest

from minivllm_server.protocol.tools import Tool


@pytest.mark.parametrize(
    "function",
    [
        {"name": "f"},
        {"name": "f", "description": "d", "parameters": {"properties": {"x": {"default": None}}}},
    ],
)
@pytest.mark.parametrize("strict", [None, True, False])
def test_a_template_is_told_what_the_client_said_of_a_tool(function, strict):
    tool = Tool.model_validate({"type": "function", "function": {**function, "strict": strict}})
    assert tool.to_template() == {"type": "function", "function": function}
