"""`POST /v1/chat/completions`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from minivllm_runtime.errors import ContextLengthExceeded, InvalidParameter
from minivllm_runtime.json_schema import schema_text
from minivllm_server.answer import AnswerChunks, new_identity, whole_answer
from minivllm_server.chat_choices import ChatChoices
from minivllm_server.exchange import ExchangeDependency
from minivllm_server.generation import Generation, check_num_choices
from minivllm_server.json_request import JSONRoute
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.protocol.chat import ChatRequest, ChatResponse
from minivllm_server.protocol.tools import NamedToolChoice, Tool
from minivllm_server.serving import Serving, ServingDependency
from minivllm_server.streaming import EVENT_STREAM, open_event_stream
from minivllm_server.tool_calls.forced import CallListParser, NamedCallParser, call_list_schema
from minivllm_server.tool_calls.parser import MakeParser

router = APIRouter(route_class=JSONRoute)


@router.post("/v1/chat/completions", response_model=ChatResponse, responses=EVENT_STREAM)
async def create_chat_completion(
    body: ChatRequest, serving: ServingDependency, exchange: ExchangeDependency
) -> Response:
    """Generates the assistant's next turn of a conversation."""
    identity = new_identity("chatcmpl", serving.resolve_model(body.model))
    messages = [message.to_template() for message in body.messages]
    serving.note_prompt(exchange, messages)
    tool_use = _plan_tool_use(body, serving)
    params = body.sampling_params(**tool_use.output_format)
    _check_strict(tool_use.strict)
    check_num_choices(1, params.n, serving.max_choices)
    prompt = await serving.engine.encode_chat(messages, tool_use.shown, body.chat_template_kwargs)
    try:
        generation = await Generation.start(serving, exchange, identity, [prompt], params)
    except ContextLengthExceeded as error:
        param = "messages" if error.param == "prompt" else error.param
        raise ContextLengthExceeded(param, str(error)) from error
    choices = ChatChoices(tool_use.make_parser, is_parallel=body.parallel_tool_calls is not False)
    if body.stream:
        chunks = AnswerChunks(
            "chat.completion.chunk",
            identity,
            choices.of_delta,
            opening=choices.opening(params.n),
            usage=generation.usage.usage if body.include_usage else None,
        )
        return await open_event_stream(generation, chunks)
    entries = [choices.whole(delta) for delta in await generation.collect()]
    return AsciiJSONResponse(whole_answer("chat.completion", identity, entries, generation.usage.usage()))


class _ToolUse(NamedTuple):
    """What tools mean for one request.

    Attributes:
        shown: For the chat template; None: the model is told of no tools.
        make_parser: Finds the calls in what it says; None: there are none.
        output_format: Fields of `SamplingParams` that force calls.
        strict: Those of several that may be called whose schemas must be enforced.
    """

    shown: list[dict[str, Any]] | None
    make_parser: MakeParser | None
    output_format: dict[str, Any]
    strict: Sequence[Tool] = ()


def _plan_tool_use(body: ChatRequest, serving: Serving) -> _ToolUse:
    tools = body.usable_tools
    if tools is None:
        return _ToolUse(None, None, {})
    shown = [tool.to_template() for tool in tools]
    match body.tool_choice:
        case NamedToolChoice(function=function):
            tool = next(each for each in tools if each.function.name == function.name)
            output_format = {"json_schema": _schema_of(tool), "strict_schema": tool.function.strict is True}
            return _ToolUse(shown, lambda: NamedCallParser(function.name), output_format)
        case "required":
            schema = call_list_schema(
                [(tool.function.name, _schema_of(tool)) for tool in tools],
                is_parallel=body.parallel_tool_calls is not False,
            )
            strict = [tool for tool in tools if tool.function.strict]
            return _ToolUse(shown, CallListParser, {"json_schema": schema, "strict_schema": False}, strict)
    if serving.make_tool_parser is None:
        raise InvalidParameter("tools", "this model has not been taught to call tools in a form known here")
    return _ToolUse(shown, serving.make_tool_parser, {})


def _check_strict(tools: Sequence[Tool]) -> None:
    """Refuse schemas that cannot be enforced, each for itself, as it was sent; together they are not too large."""
    for tool in tools:
        try:
            schema_text(_schema_of(tool), is_strict=True)
        except InvalidParameter as error:
            name = tool.function.name
            raise InvalidParameter(error.param, f"{error} (the function is {name!r})") from error


def _schema_of(tool: Tool) -> dict[str, Any]:
    """The schema of a function's arguments, which are an object whatever the schema leaves open."""
    return {"type": "object", **(tool.function.parameters or {"properties": {}})}
