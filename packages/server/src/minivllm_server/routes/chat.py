"""`POST /v1/chat/completions`."""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.exchange import ExchangeDependency
from minivllm_server.generation import AnswerChunks, Generation, check_num_choices, new_identity
from minivllm_server.json_request import JSONRoute
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.protocol.chat import AssistantMessage, ChatChoice, ChatRequest, ChatResponse
from minivllm_server.serving import ServingDependency
from minivllm_server.streaming import EVENT_STREAM, open_event_stream

router = APIRouter(route_class=JSONRoute)


@router.post("/v1/chat/completions", response_model=ChatResponse, responses=EVENT_STREAM)
async def create_chat_completion(
    body: ChatRequest, serving: ServingDependency, exchange: ExchangeDependency
) -> Response:
    """Generates the assistant's next turn of a conversation."""
    identity = new_identity("chatcmpl", serving.resolve_model(body.model))
    messages = [message.to_template() for message in body.messages]
    serving.note_prompt(exchange, messages)
    params = body.sampling_params()
    check_num_choices(1, params.n, serving.max_choices)
    prompt = await serving.engine.encode_chat(messages)
    generation = await Generation.start(serving, exchange, identity, [prompt], params)
    if body.stream:
        chunks = AnswerChunks(
            "chat.completion.chunk",
            identity,
            _choices_of,
            opening=[_part(index, {"role": "assistant", "content": ""}) for index in range(params.n)],
            usage=generation.usage.usage if body.include_usage else None,
        )
        return await open_event_stream(generation, chunks, write_timeout_s=serving.write_timeout_s)
    response = ChatResponse(
        id=identity.id,
        created=identity.created,
        model=identity.model,
        choices=[_choice(delta) for delta in await generation.collect()],
        usage=generation.usage.usage(),
    )
    return AsciiJSONResponse(response.model_dump())


def _choice(delta: ChoiceDelta) -> ChatChoice:
    assert delta.finish_reason is not None, "a whole choice has ended"
    message = AssistantMessage(content=delta.text)
    return ChatChoice(index=delta.index, message=message, finish_reason=delta.finish_reason)


def _choices_of(delta: ChoiceDelta) -> Iterator[dict[str, Any]]:
    yield _part(delta.index, {"content": delta.text}, delta.finish_reason)


def _part(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
