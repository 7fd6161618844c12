"""Requests that wait for their grammars, which are compiled while the engine goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.messages import AddRequests
from minivllm_runtime.sampling.grammar_masks import Grammar, GrammarState

_THREADS = 2

_log = logging.getLogger(__name__)


class ReadyBatch(NamedTuple):
    """A batch that waits for no grammar.

    Attributes:
        command: As it came in.
        grammars: One per request, None where it has no schema; empty with an error.
        error: What is wrong with a grammar of the batch.
    """

    command: AddRequests
    grammars: tuple[GrammarState | None, ...]
    error: InvalidParameter | None


class _Held(NamedTuple):
    """A batch that waits. It keeps its grammars itself: the compiler keeps the last ones of all only."""

    command: AddRequests
    grammars: Mapping[str, Future[Grammar]]

    @property
    def is_ready(self) -> bool:
        return all(grammar.done() for grammar in self.grammars.values())

    def grammar(self, json_schema: str) -> Grammar:
        return self.grammars[json_schema].result()


class PendingGrammars:
    """Holds batches back until all their grammars are compiled. Used by one thread.

    Args:
        compiler: Compiles the grammars.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="minivllm-grammar")
        self._held: list[_Held] = []

    @property
    def num_requests(self) -> int:
        """Requests held back."""
        return sum(len(held.command.requests) for held in self._held)

    def take(self, command: AddRequests) -> ReadyBatch | None:
        """The batch if its grammars are known; None holds it until they are compiled."""
        schemas = {request.json_schema for request in command.requests if request.json_schema is not None}
        known = {schema: grammar for schema in schemas if (grammar := self._compiler.get(schema)) is not None}
        if len(known) == len(schemas):
            return _ready(command, known.__getitem__)
        grammars = {
            schema: self._threads.submit(self._compiler.compile, schema) for schema in sorted(schemas)
        }
        self._held.append(_Held(command, grammars))
        return None

    def drop(self, request_id: str) -> str | None:
        """Forget the batch of a request that was aborted: its client has left, and waits for none of it.

        Returns:
            The batch's id; None if none is held that has the request.
        """
        for place, (command, grammars) in enumerate(self._held):
            if any(request.request_id == request_id for request in command.requests):
                for grammar in grammars.values():
                    grammar.cancel()
                del self._held[place]
                return command.batch_id
        return None

    def take_ready(self) -> list[ReadyBatch]:
        """Batches that were held and need not be any longer, in order of arrival."""
        ready: list[_Held] = []
        waiting: list[_Held] = []
        for held in self._held:
            (ready if held.is_ready else waiting).append(held)
        self._held = waiting
        return [_ready(held.command, held.grammar) for held in ready]

    def wait(self, timeout_s: float) -> None:
        """Wait until some grammar is compiled, or for the time-out."""
        unfinished = [each for held in self._held for each in held.grammars.values() if not each.done()]
        wait(unfinished, timeout_s, FIRST_COMPLETED)


def _ready(command: AddRequests, grammar_of: Callable[[str], Grammar]) -> ReadyBatch:
    """Start the grammar of each request; whatever goes wrong concerns this batch alone."""
    try:
        states = tuple(
            None if request.json_schema is None else GrammarState(grammar_of(request.json_schema))
            for request in command.requests
        )
    except InvalidParameter as error:
        return ReadyBatch(command, (), error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        _log.exception("a grammar cannot be compiled")
        return ReadyBatch(
            command, (), InvalidParameter("json_schema", f"json_schema cannot be followed: {reason}")
        )
    return ReadyBatch(command, states, None)
