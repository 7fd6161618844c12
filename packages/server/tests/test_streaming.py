import asyncio
import contextlib
import json
import time

from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.exchange import Exchange
from minivllm_server.generation import Generation
from minivllm_server.meter import Meter
from minivllm_server.metrics import ServerMetrics
from minivllm_server.streaming import DONE, event, open_event_stream

from .scripted_engine import scripted_engine


class TextChunks:
    """The plainest format: a greeting, the text, and a farewell."""

    def opening_chunks(self):
        return [{"hello": True}]

    def chunks(self, deltas):
        return ({"text": delta.text} for delta in deltas)

    def closing_chunks(self):
        return [{"bye": True}]


class Receiver:
    """The server's end of the connection, which may break after some messages."""

    def __init__(self, takes=None) -> None:
        self.messages = []
        self._takes = takes

    async def __call__(self, message) -> None:
        if self._takes is not None and len(self.messages) >= self._takes:
            raise ConnectionResetError
        self.messages.append(message)

    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


class SlowReceiver(Receiver):
    """Takes no message before the engine has generated everything."""

    async def __call__(self, message) -> None:
        while self.engine.stats().num_running:
            await asyncio.sleep(0.001)
        await super().__call__(message)


def write_stream(receiver, *, max_tokens, chunk_format=None):
    """Generates into `receiver`, which knows the engine; returns its gauges when all is over."""

    async def run():
        engine, _ = scripted_engine("héllo wörld", context=4096)
        receiver.engine = engine
        await engine.start()
        try:
            params = SamplingParams(max_tokens=max_tokens)
            submission = await engine.submit([[97]], params, request_id="r")
            meter = Meter(ServerMetrics(engine, "m"), time.monotonic, started_at=0.0, num_choices=1)
            generation = Generation(submission, 1, meter, Exchange("r", started_at=0.0))
            response = await open_event_stream(generation, chunk_format or TextChunks())
            with contextlib.suppress(ConnectionResetError):
                await response({}, None, receiver)
            other = await engine.submit([[97]], SamplingParams(max_tokens=1), request_id="other")
            async for _ in other:
                pass
            return engine.stats()
        finally:
            await engine.shutdown()

    return asyncio.run(run())


def test_an_event_is_one_line_and_an_empty_one():
    assert event({"text": "\u2028"}) == b'data: {"text":"\\u2028"}\n\n'


def test_a_stream_is_opened_goes_on_with_chunks_and_is_closed():
    receiver = Receiver()
    write_stream(receiver, max_tokens=13)
    hello, *chunks, bye, done, rest = receiver.body().split(b"\n\n")
    assert "".join(json.loads(chunk[6:])["text"] for chunk in chunks) == "héllo wörld"
    assert json.loads(hello[6:]) == {"hello": True}
    assert json.loads(bye[6:]) == {"bye": True}
    assert (done + b"\n\n", rest) == (DONE, b"")
    assert receiver.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_an_unexpected_fault_ends_the_stream_with_an_error_that_tells_nothing():
    class Faulty(TextChunks):
        def closing_chunks(self):
            raise KeyError("secret")

    receiver = Receiver()
    write_stream(receiver, max_tokens=2, chunk_format=Faulty())
    last = json.loads(receiver.body().split(b"\n\n")[-2][6:])
    assert last["error"]["message"] == "internal server error"
    assert not receiver.messages[-1]["more_body"]


def test_a_stream_that_breaks_frees_its_request():
    receiver = Receiver(takes=3)
    stats = write_stream(receiver, max_tokens=4000)
    assert len(receiver.messages) == 3
    assert receiver.messages[-1]["more_body"]
    assert stats.num_running == stats.num_blocks_in_use == 0


def test_a_slow_reader_costs_merged_deltas_not_a_queue():
    receiver = SlowReceiver()
    write_stream(receiver, max_tokens=400)
    _, *deltas, _ = (json.loads(line[6:]) for line in receiver.body().split(b"\n\n")[:-2])
    assert "".join(delta["text"] for delta in deltas).startswith("héllo wörld")
    assert len(deltas) <= 2  # the first one, and all that came after it
