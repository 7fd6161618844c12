"""Serves one engine core to clients in other processes."""

import errno
import logging
from collections import defaultdict
from collections.abc import Sequence

import zmq

from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.engine.process.wire import (
    EngineDescription,
    FromEngine,
    ToEngine,
    decode_abort,
    decode_add,
    decode_ask,
    encode,
)
from minivllm_runtime.messages import (
    AbortRequest,
    Accepted,
    AddRequests,
    Refused,
    StepOutput,
    TokenOutput,
)

_log = logging.getLogger(__name__)

_STEPS_BETWEEN_STATS = 64
"""How often a client hears of steps that have nothing for it."""

_CLIENT_IS_GONE = (errno.EHOSTUNREACH, errno.EAGAIN)
"""Nobody is connected under that name, or whoever is has let thousands of messages pile up."""


class EngineServer:
    """Steps the core while it has work and listens to clients between steps.

    A client that is gone, or that reads nothing any more, loses its requests at the next message to it.

    Args:
        core: The engine.
        description: For clients.
        socket: Bound; a ROUTER with ROUTER_MANDATORY set.
    """

    def __init__(self, core: EngineCore, description: EngineDescription, socket: "zmq.Socket[bytes]") -> None:
        self._core = core
        self._description = description
        self._socket = socket
        self._requests: dict[bytes, set[str]] = {}  # accepted and not ended, by client
        self._owners: dict[str, bytes] = {}
        self._unanswered: dict[str, tuple[bytes, AddRequests]] = {}  # by batch id
        self._queue_times_s: tuple[float, ...] = ()  # that nobody was told yet
        self._last_told_step = 0

    def serve(self) -> str:
        """Work until the engine is dead; returns why it is. Clients were told."""
        try:
            while self._core.fatal_error is None:
                self._take_messages(wait=not self._core.has_work)
                if self._core.has_work:
                    self._deliver(self._core.step())
            reason = self._core.fatal_error
        except Exception as error:  # whatever it is, those who wait must hear of it
            _log.exception("the engine died")
            reason = f"{type(error).__name__}: {error}"
        for client in tuple(self._requests):
            self._send(client, FromEngine.DEATH, reason)
        return reason

    def _take_messages(self, *, wait: bool) -> None:
        """Handle what has arrived; with `wait`, at least one message."""
        flags = 0 if wait else zmq.NOBLOCK
        while True:
            try:
                client, kind, payload = self._socket.recv_multipart(flags)
            except zmq.Again:
                return
            self._handle(client, kind, payload)
            flags = zmq.NOBLOCK

    def _handle(self, client: bytes, kind: bytes, payload: bytes) -> None:
        match kind:
            case ToEngine.DESCRIBE:
                self._send(client, FromEngine.DESCRIPTION, self._description)
            case ToEngine.HELLO:
                self._requests[client] = set()
            case ToEngine.ADD if client in self._requests:
                self._add(client, decode_add(payload))
            case ToEngine.ADD:  # given up before, with requests that it may still wait for
                self._send(client, FromEngine.DEATH, "the engine gave this client up: it read nothing")
            case ToEngine.ABORT:
                command = decode_abort(payload)
                for answer in self._core.execute([command]):
                    del self._unanswered[answer.batch_id]  # nobody waits for it any more
                self._forget(command.request_id)
            case ToEngine.ASK:
                self._tell(client, answers=self._core.execute([decode_ask(payload)]))
        if not self._core.has_work:  # no step will tell them
            self._tell_everybody()

    def _add(self, client: bytes, command: AddRequests) -> None:
        self._unanswered[command.batch_id] = (client, command)
        self._pass_on(self._core.execute([command]))

    def _pass_on(self, answers: Sequence[Accepted | Refused]) -> None:
        """Tell clients what became of their batches; what is accepted is theirs from now on."""
        for answer in answers:
            if answer.batch_id not in self._unanswered:  # its client was given up a moment ago
                continue
            client, command = self._unanswered.pop(answer.batch_id)
            if isinstance(answer, Accepted):
                self._requests[client].update(request.request_id for request in command.requests)
                self._owners |= {request.request_id: client for request in command.requests}
            self._tell(client, answers=(answer,))

    def _deliver(self, outputs: Sequence[TokenOutput]) -> None:
        """Send each client what a step made for it."""
        self._queue_times_s += self._core.take_queue_times()
        self._pass_on(self._core.take_answers())
        shares: defaultdict[bytes, list[TokenOutput]] = defaultdict(list)
        for output in outputs:
            owner = self._owners.get(output.request_id)
            if owner is None:
                continue
            shares[owner].append(output)
            if output.finish_reason is not None:
                self._forget(output.request_id)
        for client, share in shares.items():
            self._tell(client, tokens=tuple(share))
        steps_since = self._core.stats().num_steps - self._last_told_step
        if steps_since >= _STEPS_BETWEEN_STATS or not self._core.has_work:
            self._tell_everybody()

    def _tell_everybody(self) -> None:
        self._last_told_step = self._core.stats().num_steps
        for client in tuple(self._requests):
            self._tell(client)

    def _tell(
        self,
        client: bytes,
        answers: tuple[Accepted | Refused, ...] = (),
        tokens: tuple[TokenOutput, ...] = (),
    ) -> None:
        """Send a client what is its own, and how the engine is. One of them all hears how long requests waited."""
        output = StepOutput(answers, tokens, self._core.stats(), self._queue_times_s)
        if self._send(client, FromEngine.OUTPUT, output):
            self._queue_times_s = ()

    def _send(self, client: bytes, kind: FromEngine, content: object) -> bool:
        """Whether it is on its way; if not, the client is gone and so are its requests."""
        try:
            self._socket.send_multipart((client, kind.value, encode(content)), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in _CLIENT_IS_GONE:
                raise
            self._lose(client)
            return False
        return True

    def _lose(self, client: bytes) -> None:
        lost = self._requests.pop(client, set())
        if lost:
            _log.warning("a client is gone, with %d requests open", len(lost))
        for request_id in lost:
            del self._owners[request_id]
        unanswered = [command for owner, command in self._unanswered.values() if owner == client]
        for command in unanswered:
            del self._unanswered[command.batch_id]
            lost |= {request.request_id for request in command.requests}
        self._core.execute([AbortRequest(request_id) for request_id in lost])

    def _forget(self, request_id: str) -> None:
        owner = self._owners.pop(request_id, None)
        if owner is not None:
            self._requests[owner].discard(request_id)
