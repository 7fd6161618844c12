"""`POST /v1/completions`."""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.exchange import ExchangeDependency
from minivllm_server.generation import AnswerChunks, Generation, check_num_choices, new_identity
from minivllm_server.json_request import JSONRoute
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.protocol.completion import (
    DEFAULT_MAX_TOKENS,
    CompletionChoice,
    CompletionRequest,
    CompletionResponse,
)
from minivllm_server.serving import ServingDependency
from minivllm_server.streaming import EVENT_STREAM, open_event_stream

router = APIRouter(route_class=JSONRoute)


@router.post("/v1/completions", response_model=CompletionResponse, responses=EVENT_STREAM)
async def create_completion(
    body: CompletionRequest, serving: ServingDependency, exchange: ExchangeDependency
) -> Response:
    """Generates text that continues the prompt(s)."""
    identity = new_identity("cmpl", serving.resolve_model(body.model))
    serving.note_prompt(exchange, body.prompt)
    params = body.sampling_params()
    check_num_choices(len(body.prompt), params.n, serving.max_choices)
    engine = serving.engine
    prompts = [await engine.encode(prompt) if isinstance(prompt, str) else prompt for prompt in body.prompt]
    generation = await Generation.start(
        serving, exchange, identity, prompts, params, default_max_tokens=DEFAULT_MAX_TOKENS
    )
    if body.stream:
        usage = generation.usage.usage if body.include_usage else None
        chunks = AnswerChunks("text_completion", identity, _choices_of, usage=usage)
        return await open_event_stream(generation, chunks, write_timeout_s=serving.write_timeout_s)
    response = CompletionResponse(
        id=identity.id,
        created=identity.created,
        model=identity.model,
        choices=[_choice(delta) for delta in await generation.collect()],
        usage=generation.usage.usage(),
    )
    return AsciiJSONResponse(response.model_dump())


def _choice(delta: ChoiceDelta) -> CompletionChoice:
    return CompletionChoice(index=delta.index, text=delta.text, finish_reason=delta.finish_reason)


def _choices_of(delta: ChoiceDelta) -> Iterator[dict[str, Any]]:
    yield _choice(delta).model_dump()
