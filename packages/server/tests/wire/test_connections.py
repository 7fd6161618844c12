"""No client holds a connection for ever by sending slowly, by sending nothing, or by not reading."""

import contextlib
import http.client
import json
import time

import pytest

from .byte_tokens import LONG_PIECE, PIECES, byte_tokenizer, ids_of
from .harness import PATH, eventually
from .wire_client import PATIENCE_S, RawConnection, raw_request, unwrap_error

READ_TIMEOUT_S = 0.3
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def hasty(launch):
    """A server that gives a client little time."""
    return launch(read_timeout_s=READ_TIMEOUT_S)


def connect(server, data):
    """A connection on which `data` came before the server looked for it: none of its time is over by then."""
    with server.standing_still():
        return RawConnection(server.port, data)


def trickle(connection, data):
    """Sends byte after byte until the server hangs up; what it said."""
    raw = connection._socket
    raw.settimeout(0.02)
    received = b""
    for _ in range(int(PATIENCE_S / 0.02)):
        with contextlib.suppress(OSError):
            raw.send(data)
        try:
            some = raw.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return received
        received += some
        if not some:
            return received
    raise AssertionError("the server never hung up")


def error_in(answer, status):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), answer
    return unwrap_error(json.loads(body))


def test_a_connection_that_says_nothing_is_closed(hasty):
    with connect(hasty, b"") as connection:
        assert connection.read_until_closed() == b""


@pytest.mark.parametrize("beginning", [b"P", b"POST /v1", HEAD, HEAD + b"X-A: "])
def test_a_head_that_stops_coming_is_408(hasty, beginning):
    with connect(hasty, beginning) as connection:
        assert "head" in error_in(connection.read_until_closed(), 408)["message"]


def test_a_head_that_trickles_is_408(hasty):
    with connect(hasty, HEAD + b"X-A: ") as connection:
        assert "head" in error_in(trickle(connection, b"a"), 408)["message"]


def test_a_body_that_stops_coming_is_408(hasty):
    with connect(hasty, HEAD + b'Content-Length: 100\r\n\r\n{"prompt"') as connection:
        assert "body" in error_in(connection.read_until_closed(), 408)["message"]


def test_a_body_that_trickles_is_408(hasty):
    with connect(hasty, HEAD + b"Content-Length: 100000\r\n\r\n{") as connection:
        assert "body" in error_in(trickle(connection, b" "), 408)["message"]


def test_what_nobody_waits_for_does_not_keep_a_connection_open(hasty):
    """A body that goes on after the answer, which did not need it."""
    begin = b"POST /v1/nope HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with connect(hasty, begin) as connection:
        assert trickle(connection, b" ").startswith(b"HTTP/1.1 404 ")


def test_a_second_request_has_its_own_time(hasty):
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(hasty, request) as connection:
        assert connection.read_answer()[0] == 200
        connection._socket.sendall(request[:-2])
        assert error_in(connection.read_until_closed(), 408)


def test_a_long_answer_takes_as_long_as_it_takes(hasty):
    hasty.play(ids_of("."))
    hasty.model.pace.hold()
    body = b'{"prompt": "a", "max_tokens": 3}'
    with connect(hasty, raw_request(PATH, body)) as connection:
        time.sleep(2 * READ_TIMEOUT_S)
        hasty.model.pace.release()
        assert connection.read_answer()[0] == 200


@pytest.mark.parametrize("content", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"HELO there\r\n\r\n"])
def test_what_is_no_http_is_400_in_the_envelope(server, content):
    with RawConnection(server.port, content) as connection:
        error_in(connection.read_until_closed(), 400)
    assert server.works()


def test_a_huge_head_is_431(server):
    with RawConnection(server.port, HEAD) as connection:
        filler = b"X-Filler: " + b"a" * 1000 + b"\r\n"
        received = b""
        try:
            connection._socket.sendall(filler * 200)
            received = connection.read_until_closed()
        except ConnectionError:
            pass  # it hung up while the rest was still on its way
        if received:
            error_in(received, 431)
    assert server.works()


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b'20\r\n{"prompt": "a", "max_tokens": 1}\r\n'
TRAILERS = b"X-A: b\r\n" * 2000


@pytest.mark.parametrize(
    ("beginning", "rest"),
    [
        pytest.param(CHUNKED + CHUNK + b"0\r\n", TRAILERS, id="trailers"),
        pytest.param(CHUNKED + CHUNK + b"0\r\nX-A: ", b"b" * 16_000, id="one trailer"),
        pytest.param(CHUNKED + CHUNK + b"20;a=", b"b" * 16_000, id="chunk extension"),
    ],
)
def test_framing_without_end_is_431(server, beginning, rest):
    with RawConnection(server.port, beginning) as connection:
        assert "chunks" in error_in(trickle(connection, rest), 431)["message"]


def test_framing_without_end_is_no_second_answer(server):
    """The request did not need its body, so that it was answered before what is wrong with the body came."""
    beginning = b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    with RawConnection(server.port, beginning) as connection:
        assert connection.read_answer()[0] == 200
        assert trickle(connection, TRAILERS) == b""


def test_what_is_no_http_does_not_end_up_in_the_answer_before_it(server):
    server.play(ids_of("."))
    server.model.pace.hold()
    with server.send(max_tokens=30, stream=True) as connection:
        assert server.runs(1)
        connection._socket.sendall(b"HELO there\r\n\r\n")
        answer = connection.read_until_closed()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 400" not in answer


@pytest.mark.parametrize(
    ("version", "cut", "wish"),
    [
        ("1.1", 0, "Upgrade, HTTP2-Settings"),
        ("1.1", 60, "Upgrade, HTTP2-Settings"),
        ("1.1", -3, "Upgrade, HTTP2-Settings"),
        ("1.1", 0, "Upgrade, close"),
        ("1.0", 0, "Upgrade"),
    ],
)
def test_a_wish_for_another_protocol_is_ignored(server, version, cut, wish):
    """What Java's HttpClient and `curl --http2` send, in one piece or in two."""
    body = b'{"prompt": "a", "max_tokens": 1}'
    fields = {
        "Connection": wish,
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAEAAEAAAAIAAAAB",
        "Content-Length": str(len(body)),
        "X-Request-Id": "kept",
    }
    request = raw_request(PATH, body, fields).replace(b"HTTP/1.1", f"HTTP/{version}".encode())
    with RawConnection(server.port, request[:cut]) as connection:
        connection._socket.sendall(request[cut:])
        answer = http.client.HTTPResponse(connection._socket)
        answer.begin()
        assert (answer.status, answer.headers["x-request-id"]) == (200, "kept")
        assert json.loads(answer.read())["usage"]["completion_tokens"] == 1


def test_wishes_for_another_protocol_in_a_row(server, caplog):
    wish = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with RawConnection(server.port, 3 * wish + last) as connection:
        assert connection.read_until_closed().count(b"HTTP/1.1 200 OK") == 4
    assert not caplog.messages


def test_a_tunnel_is_refused(server, caplog):
    request = b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\nGET /health HTTP/1.1\r\n\r\n"
    with RawConnection(server.port, request) as connection:
        assert "CONNECT" in error_in(connection.read_until_closed(), 400)["message"]
    assert not caplog.messages


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read_loses_its_connection(launch, stream):
    server = launch(
        context=4096,
        block_size=64,
        write_timeout_s=0.2,
        tokenizer=byte_tokenizer((*PIECES, LONG_PIECE)),
    )
    server.play(ids_of(LONG_PIECE))
    body = {"prompt": "a", "temperature": 0, "max_tokens": 2000, "stream": stream}
    request = raw_request(PATH, json.dumps(body).encode())
    server.model.pace.hold()
    with RawConnection(server.port, request, receive_buffer_bytes=4096):
        assert server.runs(1)
        server.model.pace.release()
        assert server.comes_to_rest()
        assert eventually(lambda: server.num_connections == 0)
    assert server.works()


GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.contextmanager
def idle_connection(server):
    """A connection after its first answer, and what its server makes of it."""
    with RawConnection(server.port, GET_HEALTH) as connection:
        assert connection.read_answer()[0] == 200
        (protocol,) = (each for each in server.protocols if each.client == connection._socket.getsockname())
        assert eventually(lambda: protocol.timeout_keep_alive_task is not None)
        yield connection, protocol


def test_a_connection_that_stays_idle_is_closed(server):
    with idle_connection(server) as (connection, protocol):
        server.loop.call_soon_threadsafe(protocol.timeout_keep_alive_handler)
        assert connection.read_until_closed() == b""


def test_a_request_that_comes_while_the_loop_is_busy_and_idle_time_ends_is_answered(server):
    with idle_connection(server) as (connection, protocol):
        with server.standing_still():
            connection.send(GET_HEALTH)
            server.loop.call_soon_threadsafe(protocol.timeout_keep_alive_handler)
        assert connection.read_answer()[0] == 200
