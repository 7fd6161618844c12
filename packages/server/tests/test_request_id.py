import time

import httpx
from starlette.responses import PlainTextResponse

from minivllm_server.request_id import MAX_HEADER_BYTES, RequestIdHeader


def ids_of_answers(serve_asgi, *headers):
    url = serve_asgi(RequestIdHeader(PlainTextResponse("ok"), time.monotonic)).url
    return [
        httpx.get(url, headers=sent, trust_env=False, timeout=30).headers.get_list("x-request-id")
        for sent in headers
    ]


def test_a_clients_id_is_echoed(serve_asgi):
    assert ids_of_answers(serve_asgi, {"X-Request-Id": "mine-1"}) == [["mine-1"]]


def test_without_one_every_answer_has_its_own(serve_asgi):
    [first], [second] = ids_of_answers(serve_asgi, {}, {"x-request-id": ""})
    assert {first, second}.isdisjoint({""})
    assert first != second


def test_a_long_one_is_cut(serve_asgi):
    assert ids_of_answers(serve_asgi, {"x-request-id": "x" * 5000}) == [["x" * MAX_HEADER_BYTES]]


def test_one_cut_at_a_space_is_still_a_header(serve_asgi):
    sent = ["x" * (MAX_HEADER_BYTES - 3) + space + "y" for space in ("   ", "\t\t\t", " \t ")]
    answers = ids_of_answers(serve_asgi, *({"x-request-id": value} for value in sent))
    assert answers == [["x" * (MAX_HEADER_BYTES - 3)]] * 3
