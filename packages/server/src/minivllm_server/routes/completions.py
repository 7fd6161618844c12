"""`POST /v1/completions`."""

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.outputs import ChoiceDelta, TokenLogprob
from minivllm_server.exchange import ExchangeDependency
from minivllm_server.generation import AnswerChunks, Generation, check_num_choices, new_identity
from minivllm_server.json_request import JSONRoute
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.protocol.completion import DEFAULT_MAX_TOKENS, CompletionRequest, CompletionResponse
from minivllm_server.protocol.logprobs import completion_logprobs
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
    return AsciiJSONResponse(
        {
            "id": identity.id,
            "object": "text_completion",
            "created": identity.created,
            "model": identity.model,
            "choices": entries,
            "usage": generation.usage.usage().model_dump(),
        }
    )


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


class CompletionChoices:
    """Makes entries of `choices` from deltas; a choice begins with its prompt where that is echoed.

    Args:
        n: Choices per prompt.
        echoed: Text of each prompt, None: nothing is echoed.
        has_logprobs: Whether log-probabilities are shown.
    """

    def __init__(self, n: int, echoed: Sequence[str] | None, *, has_logprobs: bool) -> None:
        self._n = n
        self._echoed = echoed
        self._has_logprobs = has_logprobs
        self._begun: set[int] = set()
        self._prompt_logprobs: dict[int, tuple[TokenLogprob, ...]] = {}

    def of_delta(self, delta: ChoiceDelta) -> Iterator[dict[str, Any]]:
        """Yields the entry of one delta, in the shape of `CompletionChoice`."""
        prompt_index = delta.index // self._n
        if delta.prompt_logprobs is not None:  # comes with the first of its n choices, and with no other
            self._prompt_logprobs[prompt_index] = delta.prompt_logprobs
        prompt = "" if self._echoed is None else self._echoed[prompt_index]
        is_first = delta.index not in self._begun
        self._begun.add(delta.index)
        logprobs = None
        if self._has_logprobs:
            of_prompt = self._prompt_logprobs.get(prompt_index, ()) if is_first else ()
            logprobs = completion_logprobs(of_prompt, delta.logprobs or (), len(prompt))
        yield {
            "index": delta.index,
            "text": prompt + delta.text if is_first else delta.text,
            "logprobs": logprobs,
            "finish_reason": delta.finish_reason,
        }
