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
from minivllm_server.protocol.chat import ChatRequest, ChatResponse
from minivllm_server.protocol.logprobs import chat_logprobs
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
    return AsciiJSONResponse(
        {
            "id": identity.id,
            "object": "chat.completion",
            "created": identity.created,
            "model": identity.model,
            "choices": [_choice(delta) for delta in await generation.collect()],
            "usage": generation.usage.usage().model_dump(),
        }
    )


def _choice(delta: ChoiceDelta) -> dict[str, Any]:
    """The entry of `choices` for a whole answer, in the shape of `ChatChoice`."""
    return {
        "index": delta.index,
        "message": {"role": "assistant", "content": delta.text, "refusal": None},
        "logprobs": _logprobs_of(delta),
        "finish_reason": delta.finish_reason,
    }


def _choices_of(delta: ChoiceDelta) -> Iterator[dict[str, Any]]:
    """Yields the entry of `choices` for a piece of an answer."""
    yield _part(delta.index, {"content": delta.text}, _logprobs_of(delta), delta.finish_reason)


def _logprobs_of(delta: ChoiceDelta) -> dict[str, Any] | None:
    return None if delta.logprobs is None else chat_logprobs(delta.logprobs)


def _part(
    index: int,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
