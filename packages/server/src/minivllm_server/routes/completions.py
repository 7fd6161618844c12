"""`POST /v1/completions`."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from minivllm_runtime.engine.async_engine import Submission
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.outputs import ChoiceDelta, FinishReasonName
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.json_request import JSONRoute
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.protocol.completion import (
    DEFAULT_MAX_TOKENS,
    CompletionChoice,
    CompletionChunk,
    CompletionRequest,
    CompletionResponse,
)
from minivllm_server.protocol.usage import UsageCounter
from minivllm_server.serving import Serving, ServingDependency
from minivllm_server.streaming import open_event_stream

router = APIRouter(route_class=JSONRoute)


@dataclass(frozen=True, slots=True)
class _Identity:
    """What all chunks of an answer share."""

    id: str
    created: int
    model: str


@router.post("/v1/completions", response_model=CompletionResponse)
async def create_completion(body: CompletionRequest, serving: ServingDependency) -> Response:
    """Generates text that continues the prompt(s)."""
    identity = _Identity(f"cmpl-{uuid.uuid4().hex}", int(time.time()), serving.resolve_model(body.model))
    params = body.sampling_params()
    submission = await _submit(body.prompt, params, serving, identity.id)
    usage = UsageCounter(submission.num_prompt_tokens, params.n)
    if body.stream:
        chunk_format = CompletionChunks(identity, usage if body.include_usage else None)
        return await open_event_stream(submission, chunk_format, write_timeout_s=serving.write_timeout_s)
    async with aclosing(submission):
        choices = await _collect(submission, usage)
    response = CompletionResponse(
        id=identity.id, created=identity.created, model=identity.model, choices=choices, usage=usage.usage()
    )
    return AsciiJSONResponse(response.model_dump())


async def _submit(
    texts_or_ids: Sequence[str | list[int]], params: SamplingParams, serving: Serving, request_id: str
) -> Submission:
    if len(texts_or_ids) * params.n > serving.max_choices:
        raise InvalidParameter(
            "n",
            f"n * prompts must be at most {serving.max_choices}, got {params.n} * {len(texts_or_ids)}",
        )
    engine = serving.engine
    prompts = [await engine.encode(prompt) if isinstance(prompt, str) else prompt for prompt in texts_or_ids]
    return await engine.submit(prompts, params, request_id=request_id, default_max_tokens=DEFAULT_MAX_TOKENS)


async def _collect(submission: Submission, usage: UsageCounter) -> list[CompletionChoice]:
    """Returns the finished choices in index order."""
    pieces: dict[int, list[str]] = {}
    finish_reasons: dict[int, FinishReasonName] = {}
    async for deltas in submission:
        usage.add(deltas)
        for delta in deltas:
            pieces.setdefault(delta.index, []).append(delta.text)
            if delta.finish_reason is not None:
                finish_reasons[delta.index] = delta.finish_reason
    return [
        CompletionChoice(index=index, text="".join(pieces[index]), finish_reason=finish_reasons[index])
        for index in sorted(pieces)
    ]


class CompletionChunks:
    """Formats the deltas of a streamed completion: one chunk per delta.

    Args:
        identity: What all chunks share.
        usage: Counts for the closing chunk; None if the client did not ask for usage.
    """

    def __init__(self, identity: _Identity, usage: UsageCounter | None) -> None:
        self._identity = identity
        self._usage = usage

    def chunks(self, deltas: Iterable[ChoiceDelta]) -> Iterator[dict[str, Any]]:
        """Yields one chunk per delta."""
        for delta in deltas:
            if self._usage is not None:
                self._usage.add((delta,))
            choice = CompletionChoice(index=delta.index, text=delta.text, finish_reason=delta.finish_reason)
            yield self._dump(CompletionChunk(**self._shared(), choices=[choice]))

    def closing_chunks(self) -> Iterator[dict[str, Any]]:
        """Yields the usage chunk, if it was asked for."""
        if self._usage is not None:
            yield self._dump(CompletionChunk(**self._shared(), choices=[], usage=self._usage.usage()))

    def _shared(self) -> dict[str, Any]:
        return {"id": self._identity.id, "created": self._identity.created, "model": self._identity.model}

    def _dump(self, chunk: CompletionChunk) -> dict[str, Any]:
        return chunk.model_dump(exclude={"usage"} if self._usage is None else None)
