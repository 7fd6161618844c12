"""`POST /v1/completions`."""

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.responses import Response

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_server.answer import AnswerChunks, new_identity, whole_answer
from minivllm_server.completion_choices import CompletionChoices
from minivllm_server.exchange import ExchangeDependency
from minivllm_server.generation import Generation, check_num_choices
from minivllm_server.json_request import JSONRoute
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.protocol.completion import DEFAULT_MAX_TOKENS, CompletionRequest, CompletionResponse
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
    try:
        echoed = await _texts_of(body.prompt, engine, params.skip_special_tokens) if body.echo else None
    except BaseException:
        await generation.aclose()
        raise
    choices = CompletionChoices(params.n, echoed, has_logprobs=body.logprobs is not None)
    if body.stream:
        usage = generation.usage.usage if body.include_usage else None
        chunks = AnswerChunks("text_completion", identity, choices.of_delta, usage=usage)
        return await open_event_stream(generation, chunks)
    entries = [entry for delta in await generation.collect() for entry in choices.of_delta(delta)]
    return AsciiJSONResponse(whole_answer("text_completion", identity, entries, generation.usage.usage()))


async def _texts_of(
    prompts: Sequence[str | list[int]], engine: AsyncEngine, skip_special_tokens: bool
) -> list[str]:
    """What is echoed of each prompt."""
    return [
        prompt
        if isinstance(prompt, str)
        else await engine.detokenize(prompt, skip_special_tokens=skip_special_tokens)
        for prompt in prompts
    ]
