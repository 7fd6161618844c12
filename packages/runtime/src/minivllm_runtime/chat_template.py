"""Renders the chat templates that come with models: Jinja, written by strangers, hence a sandbox.

The environment is that of `transformers.apply_chat_template`, so that the text is the same character for
character; importing it from there would cost more than a second at the first chat request.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minivllm_runtime.errors import InvalidParameter, ModelLoadError
from minivllm_runtime.garbage import collection_held_off


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja source.
        special_tokens: What the template sees beside the messages: "bos_token", "eos_token" and the like.

    Raises:
        ModelLoadError: the source is no valid template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self._supports_tools = "tools" in find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateSyntaxError as error:
            raise ModelLoadError(
                f"the chat template is damaged at line {error.lineno}: {error.message}"
            ) from error
        self._special_tokens = dict(special_tokens)
        self._knows_developers = "developer" in source

    @property
    def supports_tools(self) -> bool:
        """Whether the template looks at the tools at all; one that does not would silently drop them."""
        return self._supports_tools

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for the assistant's next turn.

        Args:
            messages: Each with "role" and "content", oldest first. Templates expect the arguments of a tool call to be
                an object; arguments that are JSON text, as OpenAI describes them, are decoded. The role "developer" is
                "system" where the template does not know it.
            tools: Functions that the assistant may call, as OpenAI describes them.
            variables: What else the template may ask for, such as Qwen3's "enable_thinking".

        Raises:
            InvalidParameter: the template refuses the messages, for example an unknown role, or one of the variables
                has the name of something that the template gets otherwise.
        """
        given = {
            "messages": [self._as_known(message) for message in messages],
            "tools": None if tools is None else [dict(tool) for tool in tools],
            "documents": None,
            "add_generation_prompt": True,
            **self._special_tokens,
        }
        if taken := given.keys() & (variables or {}):
            raise InvalidParameter(
                "chat_template_kwargs",
                f"chat_template_kwargs must not have {min(taken)!r}: the server sets it",
            )
        try:
            return self._template.render({**given, **(variables or {})})
        # A template may fail in any way its author did not think of; it is the messages that made it fail.
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise InvalidParameter(
                "messages", f"the model's chat template refused the messages: {error}"
            ) from error

    def _as_known(self, message: Mapping[str, Any]) -> dict[str, Any]:
        known = _with_decoded_calls(message)
        if known.get("role") == "developer" and not self._knows_developers:
            known["role"] = "system"
        return known


def _with_decoded_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    decoded = dict(message)
    if calls := decoded.get("tool_calls"):
        with collection_held_off():
            decoded["tool_calls"] = [_with_decoded_arguments(call) for call in calls]
    return decoded


def _with_decoded_arguments(call: Mapping[str, Any]) -> Mapping[str, Any]:
    match call:
        case {"function": {"arguments": str(text)} as function}:
            return {**call, "function": {**function, "arguments": _decoded_object(text)}}
    return call


def _decoded_object(text: str) -> dict[str, Any]:
    """What templates can show; a model may have written anything, or was cut short, and the conversation goes on."""
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text for training; the text is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller: Macro) -> str:
        return str(caller())


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which a prompt is not."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> str:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005 - the reference has no time zone either
