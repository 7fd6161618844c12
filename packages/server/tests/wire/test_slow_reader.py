"""A reader that is slower than the engine costs one merged delta, and past a limit its request."""

import contextlib
import json

import pytest

from .byte_tokens import LONG_PIECE, PIECES, byte_tokenizer, ids_of
from .harness import PATH, eventually
from .wire_client import RawConnection, raw_request

NUM_TOKENS = 1600
"""So many long pieces, 8 MB, are more than the sockets' buffers hold."""


@contextlib.contextmanager
def slow_request(server, **body):
    """A stream that runs, of a reader that has a small buffer and has not begun to read; the model is held."""
    content = json.dumps({"prompt": "a", "temperature": 0, "stream": True, **body}).encode()
    server.model.pace.hold()
    with RawConnection(server.port, raw_request(PATH, content), receive_buffer_bytes=4096) as reader:
        assert server.runs(1)
        yield reader


@pytest.fixture(scope="module")
def launch_wordy(launch):
    """Starts servers whose model says long pieces."""

    def start(**settings):
        server = launch(
            context=4096, block_size=64, tokenizer=byte_tokenizer((*PIECES, LONG_PIECE)), **settings
        )
        server.play(ids_of(LONG_PIECE))
        return server

    return start


def test_what_was_not_read_in_time_is_one_delta(launch_wordy):
    server = launch_wordy()
    with slow_request(server, max_tokens=NUM_TOKENS) as reader:
        server.model.pace.release()
        assert server.comes_to_rest()  # the engine waits for no reader
        received = bytearray()
        while b"[DONE]" not in received[-100:]:
            received += reader.read_some()
    events = [line for line in received.splitlines() if line.startswith(b"data: {")]
    texts = [json.loads(event.removeprefix(b"data: "))["choices"][0]["text"] for event in events]
    assert "".join(texts) == LONG_PIECE * NUM_TOKENS
    assert len(texts) < NUM_TOKENS


def test_a_reader_that_never_reads_loses_its_request(launch_wordy):
    server = launch_wordy(write_timeout_s=0.2)
    with slow_request(server, max_tokens=4000):
        server.model.pace.allow(NUM_TOKENS)
        assert eventually(lambda: server.num_aborted == 1)
        server.model.pace.release()
        assert server.comes_to_rest()
        assert server.model.pace.num_begun < 4000
    assert server.works()
