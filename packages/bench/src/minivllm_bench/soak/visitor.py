"""One client of a soak: asks in different ways, and says whether the server did what is right."""

import asyncio
import json
from collections.abc import Mapping
from enum import StrEnum
from itertools import count
from typing import Any, NamedTuple

from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.event_reader import DONE, EventReader
from minivllm_bench.serve.exchange import Answer, Exchange, open_exchange
from minivllm_bench.serve.streamed_answer import HTTP_OK
from minivllm_bench.soak.bad_requests import BadRequest
from minivllm_bench.soak.cases import Case

_QUEUE_FULL = 503
_SLOW_PAUSE_S = 0.1
REQUEST_ID = "x-request-id"


class End(StrEnum):
    """How a visit ended."""

    ANSWERED = "answered"
    QUEUE_FULL = "queue full"
    REFUSED = "refused"
    LEFT = "left"
    FAULT = "fault"


class Visit(NamedTuple):
    """What came of one request.

    Attributes:
        end: How it ended.
        fault: What was wrong; empty if nothing was.
    """

    end: End
    fault: str = ""


class Choice(NamedTuple):
    """One choice of an answer, whole or so far."""

    text: str = ""
    finish_reason: str | None = None
    num_logprobs: int = 0

    def with_entry(self, entry: Mapping[str, Any]) -> "Choice":
        """It and what an entry of `choices` adds to it, of a completion or a chat, whole or a delta."""
        message = entry.get("message") or entry.get("delta")
        text = entry["text"] if message is None else message.get("content") or ""
        logprobs = entry.get("logprobs") or {"token_logprobs": ()}
        return Choice(
            self.text + text, entry["finish_reason"], self.num_logprobs + len(logprobs["token_logprobs"])
        )


class WholeAnswer(NamedTuple):
    """What equal cases have in common.

    Attributes:
        choices: By index.
        prompt_tokens, completion_tokens: As its usage says.
    """

    choices: tuple[Choice, ...]
    prompt_tokens: int
    completion_tokens: int


class Visitor:
    """Asks a server and compares with what is expected.

    Attributes:
        expected: What each case must give, as far as it is known.
    """

    def __init__(self, endpoint: Endpoint, model: str, *, timeout_s: float) -> None:
        """Prepare for a server.

        Args:
            endpoint: Where it listens.
            model: The name that it knows.
            timeout_s: Longest wait for an answer; a longer one is a fault.
        """
        self.expected: dict[Case, WholeAnswer] = {}
        self._endpoint = endpoint
        self._model = model
        self._timeout_s = timeout_s
        self._ids = count()

    async def ask(
        self, case: Case, *, stream: bool = False, slowly: bool = False, cache_salt: str | None = None
    ) -> Visit:
        """Ask for a whole answer; the first answer to a case is what is expected from then on.

        Args:
            case: What to ask.
            stream: Whether to have it streamed.
            slowly: Whether to read with pauses.
            cache_salt: See `Case.body`.
        """
        body = json.dumps(case.body(self._model, stream=stream, cache_salt=cache_salt)).encode()
        try:
            answer = await self._fetch("POST", case.path, body, slowly=slowly)
            if answer.status == _QUEUE_FULL:
                return _refusal(answer, _QUEUE_FULL, End.QUEUE_FULL)
            if answer.status != HTTP_OK:
                return Visit(End.FAULT, f"status {answer.status}: {answer.body[:200]!r}")
            given = read_stream(case, answer.body) if stream else read_whole(case, json.loads(answer.body))
        except TimeoutError:
            return Visit(End.FAULT, f"no answer in {self._timeout_s:g} s")
        except (OSError, ValueError, KeyError) as error:
            return Visit(End.FAULT, f"{type(error).__name__}: {error}")
        expected = self.expected.setdefault(case, given)
        if given != expected:
            return Visit(End.FAULT, f"{given} in place of {expected}")
        return Visit(End.ANSWERED)

    async def leave(self, case: Case, *, stream: bool, after_pieces: int, within_s: float) -> Visit:
        """Ask, and hang up when so many pieces of the body have come, the time is over, or it was the whole answer."""
        body = json.dumps(case.body(self._model, stream=stream, cache_salt=None)).encode()
        enough = asyncio.Event()
        num_pieces = 0

        def receive(_data: bytes) -> None:
            nonlocal num_pieces
            num_pieces += 1
            if num_pieces >= after_pieces:
                enough.set()

        request = self._endpoint.request("POST", case.path, body)
        try:
            exchange = await open_exchange(self._endpoint, request, receive)
            waits = [asyncio.ensure_future(exchange.wait()), asyncio.ensure_future(enough.wait())]
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
            await asyncio.wait(waits)
            if not waits[0].cancelled():
                waits[0].result()
        except OSError as error:
            return Visit(End.FAULT, f"{type(error).__name__}: {error}")
        return Visit(End.LEFT)

    async def misbehave(self, bad: BadRequest) -> Visit:
        """Send what the server must refuse."""
        try:
            answer = await self._fetch(bad.method, bad.path, bad.body)
        except (OSError, ValueError) as error:
            return Visit(End.FAULT, f"{bad.name}: {type(error).__name__}: {error}")
        visit = _refusal(answer, bad.status, End.REFUSED)
        return visit._replace(fault=f"{bad.name}: {visit.fault}") if visit.fault else visit

    async def get(self, path: str) -> Answer:
        """A page of the server.

        Raises:
            OSError: there was no answer.
            ValueError: it was the answer to another request.
        """
        return await self._fetch("GET", path, b"")

    async def _fetch(self, method: str, path: str, body: bytes, *, slowly: bool = False) -> Answer:
        request_id = f"soak-{next(self._ids)}"
        request = self._endpoint.request(method, path, body, {REQUEST_ID: request_id})
        received = bytearray()
        async with asyncio.timeout(self._timeout_s):
            exchange = await open_exchange(self._endpoint, request, received.extend)
            if slowly:
                await _read_with_pauses(exchange)
            else:
                await exchange.wait()
        assert exchange.status is not None, "a complete response has a head"
        echoed = exchange.headers.get(REQUEST_ID)
        if echoed != request_id:
            raise ValueError(f"request {request_id} got the answer to {echoed}")
        return Answer(exchange.status, exchange.headers, bytes(received))


async def _read_with_pauses(exchange: Exchange) -> None:
    """Read a moment, wait a moment, to the end."""
    end = asyncio.ensure_future(exchange.wait())
    try:
        while not end.done():
            exchange.pause_reading()
            await asyncio.sleep(_SLOW_PAUSE_S)
            exchange.resume_reading()
            await asyncio.wait([end], timeout=_SLOW_PAUSE_S / 10)
        await end
    finally:
        end.cancel()


def read_whole(case: Case, answer: Mapping[str, Any]) -> WholeAnswer:
    """An answer that was not streamed.

    Raises:
        ValueError: choices are missing, or usage is wrong.
        KeyError: a field is missing.
    """
    by_index = {entry["index"]: Choice().with_entry(entry) for entry in answer["choices"]}
    return _checked(case, by_index, answer["usage"])


def read_stream(case: Case, body: bytes) -> WholeAnswer:
    """A streamed answer, deltas joined.

    Raises:
        ValueError: an event is damaged, the stream failed or is not complete, or usage is wrong.
        KeyError: a field is missing.
    """
    *payloads, last = EventReader().feed(body) or [b""]
    if last != DONE:
        raise ValueError(f"the stream ends with {last[:200]!r}")
    by_index: dict[int, Choice] = {}
    ids: set[str] = set()
    usage: Mapping[str, int] | None = None
    for chunk in map(json.loads, payloads):
        ids.add(chunk["id"])
        usage = chunk["usage"] or usage
        for entry in chunk["choices"]:
            so_far = by_index.get(entry["index"], Choice())
            if so_far.finish_reason is not None:
                raise ValueError(f"choice {entry['index']} goes on after its end")
            by_index[entry["index"]] = so_far.with_entry(entry)
    if len(ids) != 1:
        raise ValueError(f"chunks of {len(ids)} answers in one stream")
    if usage is None:
        raise ValueError("no usage")
    return _checked(case, by_index, usage)


def _checked(case: Case, by_index: Mapping[int, Choice], usage: Mapping[str, int]) -> WholeAnswer:
    if set(by_index) != set(range(case.num_choices)):
        raise ValueError(f"choices {sorted(by_index)} of {case.num_choices}")
    choices = tuple(by_index[index] for index in range(case.num_choices))
    if any(choice.finish_reason not in {"stop", "length"} for choice in choices):
        raise ValueError(f"finish reasons {[choice.finish_reason for choice in choices]}")
    if case.has_equal_choices and len(set(choices)) > 1:
        raise ValueError(f"choices that must be equal differ: {choices}")
    prompt_tokens, completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
    if case.num_prompt_tokens not in {None, prompt_tokens}:
        raise ValueError(f"usage has {prompt_tokens} of {case.num_prompt_tokens} prompt tokens")
    most = case.max_tokens * case.num_choices
    if completion_tokens > most or (case.ignore_eos and completion_tokens != most):
        raise ValueError(f"usage has {completion_tokens} completion tokens, {most} were asked for")
    return WholeAnswer(choices, prompt_tokens, completion_tokens)


def _refusal(answer: Answer, status: int, end: End) -> Visit:
    """A visit that was to be refused with this status, in OpenAI's envelope, and with `Retry-After` if busy."""
    if answer.status != status:
        return Visit(End.FAULT, f"status {answer.status} in place of {status}: {answer.body[:200]!r}")
    try:
        message = json.loads(answer.body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return Visit(End.FAULT, f"status {status} without an error envelope: {answer.body[:200]!r}")
    if not message:
        return Visit(End.FAULT, f"status {status} without a message")
    if status == _QUEUE_FULL and "retry-after" not in answer.headers:
        return Visit(End.FAULT, "status 503 without Retry-After")
    return Visit(end)
