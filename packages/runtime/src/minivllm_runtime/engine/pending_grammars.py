"""Requests that wait for their grammars, which are compiled while the engine goes on."""

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.engine.messages import AddRequests
from minivllm_runtime.errors import InvalidParameter

_THREADS = 2


class _Pending(NamedTuple):
    command: AddRequests
    grammars: list[Future[object]]


class PendingGrammars:
    """Holds batches back until all their grammars are compiled. Used by one thread.

    Args:
        compiler: Compiles and keeps the grammars.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._threads: ThreadPoolExecutor | None = None
        self._pending: list[_Pending] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held back."""
        return not self._pending

    def hold(self, command: AddRequests) -> bool:
        """Take the batch if a grammar of it must be compiled first; False leaves it to the caller."""
        schemas = {request.json_schema for request in command.requests if request.json_schema is not None}
        missing = [schema for schema in sorted(schemas) if self._compiler.get(schema) is None]
        if not missing:
            return False
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="minivllm-grammar")
        self._pending.append(
            _Pending(command, [self._threads.submit(self._compiler.compile, schema) for schema in missing])
        )
        return True

    def drop(self, request_id: str) -> str | None:
        """Forget the batch of a request that was aborted: its client has left, and waits for none of it.

        Returns:
            The batch's id; None if none is held that has the request.
        """
        for place, (command, grammars) in enumerate(self._pending):
            if any(request.request_id == request_id for request in command.requests):
                for grammar in grammars:
                    grammar.cancel()
                del self._pending[place]
                return command.batch_id
        return None

    def take_ready(self) -> list[tuple[AddRequests, InvalidParameter | None]]:
        """Batches whose grammars are compiled, in order of arrival; with what is wrong with one of them."""
        ready = [pending for pending in self._pending if all(each.done() for each in pending.grammars)]
        self._pending = [pending for pending in self._pending if not any(pending is each for each in ready)]
        return [(pending.command, _error(pending.grammars)) for pending in ready]

    def wait(self, timeout_s: float) -> None:
        """Wait until some grammar is compiled, or for the time-out."""
        unfinished = [each for pending in self._pending for each in pending.grammars if not each.done()]
        wait(unfinished, timeout_s, FIRST_COMPLETED)


def _error(grammars: list[Future[object]]) -> InvalidParameter | None:
    for grammar in grammars:
        error = grammar.exception()
        if isinstance(error, InvalidParameter):
            return error
        if error is not None:
            return InvalidParameter("json_schema", f"json_schema cannot be followed: {error}")
    return None
