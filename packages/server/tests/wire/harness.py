"""Servers as `minivllm serve` runs them, on loopback ports, around a model that follows a tape."""

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

import httpx
import torch

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.engine.builder import BuiltEngine, assemble_engine
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_server.connection import BoundedConnection
from minivllm_server.listener import bind, url_of
from minivllm_server.server import DrainingServer, serve_engine
from minivllm_server.settings import ServerSettings

from .byte_tokens import byte_tokenizer
from .tape_model import Entry, TapeModel
from .wire_client import PATIENCE_S, InBackground, RawConnection, Stream, raw_request

NUM_PADDED_ROWS = 5
"""Rows of the embedding that belong to no token."""
PATH = "/v1/completions"
CHAT_PATH = "/v1/chat/completions"
CONVERSATION = [{"role": "user", "content": "a"}]


def eventually(condition: Callable[[], bool], *, pause_s: float = 0.002) -> bool:
    """Whether a condition that other threads make true holds within more time than any machine needs."""
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(pause_s)
    return True


def assemble_tape(
    settings: ServerSettings, *, context: int, tokenizer: Tokenizer | None = None
) -> tuple[BuiltEngine, TapeModel]:
    """An engine in which everything but the weights is real, and its model."""
    tokenizer = tokenizer or byte_tokenizer()
    vocab_size = tokenizer.vocab_size + NUM_PADDED_ROWS
    model = TapeModel(vocab_size)
    model_config = ModelConfig(
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=1,
        intermediate_size=1,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=1,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        max_position_embeddings=context,
    )
    built = assemble_engine(
        settings.engine_config(),
        model,
        tokenizer,
        model_config,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return built, model


class TapeServer:
    """A server in a thread of its own, and a client of it.

    Args:
        context: Positions of the model.
        tokenizer: By default that of `byte_tokens`.
        settings: As for `minivllm serve`.
    """

    def __init__(self, *, context: int = 64, tokenizer: Tokenizer | None = None, **settings) -> None:
        block_size = settings.get("block_size", 4)
        defaults = {
            "served_model_name": ("scripted", "alias"),
            "block_size": block_size,
            "num_blocks": 8 * -(-context // block_size),
            "max_num_seqs": 8,
        }
        self.settings = ServerSettings(**(defaults | settings))
        built, self.model = assemble_tape(self.settings, context=context, tokenizer=tokenizer)
        self.engine = AsyncEngine(built)
        self._listener = bind("127.0.0.1", 0)
        self.url = url_of(self._listener)
        self.port: int = self._listener.getsockname()[1]
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the server did not start"
        return self

    def __exit__(self, *_exc: object) -> None:
        self.model.pace.release()
        self.client.close()
        with contextlib.suppress(RuntimeError):  # the loop may have ended
            for _ in range(2):  # the second one does not wait for open requests
                self.loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the server did not stop"

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await serve_engine(self.engine, self._listener, self.settings, on_ready=self._on_ready)

    def _on_ready(self, server: DrainingServer) -> None:
        self._server = server
        self._ready.set()

    def play(self, script: Sequence[Entry], *, prompt_len: int = 1) -> None:
        """What follows a prompt of `prompt_len` tokens; see TapeModel."""
        self.model.play(script, prompt_len=prompt_len)

    def complete(self, **body) -> httpx.Response:
        """The whole answer; greedy, after a prompt of one token, unless the body says otherwise."""
        return self.client.post(PATH, json={"prompt": "a", "temperature": 0, **body})

    def choice(self, **body) -> dict:
        """The only choice of a whole answer."""
        answer = self.complete(**body)
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        return choice

    def stream(self, **body) -> Stream:
        """A stream, opened when it is entered."""
        return Stream(self.client, PATH, {"prompt": "a", "temperature": 0, **body, "stream": True})

    def chat(self, **body) -> httpx.Response:
        """The whole answer to a conversation of one token, greedy, unless the body says otherwise."""
        return self.client.post(CHAT_PATH, json={"messages": CONVERSATION, "temperature": 0, **body})

    def chat_choice(self, **body) -> dict:
        """The only choice of a whole answer to a conversation."""
        answer = self.chat(**body)
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        return choice

    def chat_stream(self, **body) -> Stream:
        """A stream of an answer to a conversation, opened when it is entered."""
        return Stream(
            self.client, CHAT_PATH, {"messages": CONVERSATION, "temperature": 0, **body, "stream": True}
        )

    def background(self, post: Callable[[], object]) -> InBackground:
        """Any call in a thread."""
        return InBackground(post)

    def in_background(self, headers: Mapping[str, str] | None = None, **body) -> InBackground:
        """A whole answer that is waited for in a thread."""
        body = {"prompt": "a", "temperature": 0, **body}
        return InBackground(lambda: self.client.post(PATH, json=body, headers=headers))

    def send(self, **body) -> RawConnection:
        """A request on a socket of its own, dropped when it is left."""
        request = json.dumps({"prompt": "a", "temperature": 0, **body}).encode()
        return RawConnection(self.port, raw_request(PATH, request))

    def runs(self, num: int) -> bool:
        """Whether so many requests run soon; see `steps_until`."""
        return self.steps_until(lambda: self.engine.stats().num_running == num)

    def queues(self, num: int) -> bool:
        """Whether so many requests wait soon, behind one that runs: what just came in does not count as waiting.

        See `steps_until`.
        """

        def queue_is_behind_a_running_request() -> bool:
            stats = self.engine.stats()
            return stats.num_running > 0 and stats.num_waiting == num

        return self.steps_until(queue_is_behind_a_running_request)

    def steps_until(self, condition: Callable[[], bool]) -> bool:
        """Whether a condition holds soon.

        A model that is held takes a step at each look, 20 ms apart: requests come to the engine between its steps.
        """

        def look() -> bool:
            if condition():
                return True
            self.model.pace.let_go_on()
            return False

        return eventually(look, pause_s=0.02)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """The event loop does nothing while this is entered: what clients do meanwhile comes to it all at once."""
        stands, goes_on = threading.Event(), threading.Event()

        def stand() -> None:
            stands.set()
            assert goes_on.wait(PATIENCE_S)

        self.loop.call_soon_threadsafe(stand)
        assert stands.wait(PATIENCE_S)
        try:
            yield
        finally:
            goes_on.set()

    @property
    def protocols(self) -> tuple[BoundedConnection, ...]:
        """The server's side of each open connection."""
        return tuple(self._server.server_state.connections)

    @property
    def num_connections(self) -> int:
        """Connections that are open."""
        return len(self.protocols)

    @property
    def num_pipelined(self) -> int:
        """Requests that wait until an earlier one of their connection is answered."""
        return sum(len(each.pipeline) for each in self.protocols)

    def drain(self) -> None:
        """What the first SIGTERM does."""
        self.loop.call_soon_threadsafe(self._server.stop)

    def works(self) -> bool:
        """Whether a plain request is served."""
        return self.complete(max_tokens=1).status_code == 200

    def is_at_rest(self) -> bool:
        """Whether no request exists and every block is back."""
        stats = self.engine.stats()
        return (
            stats.num_running == stats.num_waiting == stats.num_blocks_in_use == 0
            and stats.num_blocks_allocatable == stats.num_blocks
        )

    def comes_to_rest(self) -> bool:
        """Whether it is at rest soon."""
        return eventually(self.is_at_rest)

    @property
    def num_aborted(self) -> int:
        """Choices so far whose clients left before they had ended."""
        page = self.client.get("/metrics").text
        found = re.search(
            r'^minivllm:request_success_total{.*finished_reason="abort".*} (\S+)$', page, re.MULTILINE
        )
        assert found, page
        return int(float(found[1]))
