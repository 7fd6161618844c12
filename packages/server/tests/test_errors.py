import json

import httpx
import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from minivllm_runtime.errors import EngineDead, InvalidParameter, QueueFull, RequestFailed
from minivllm_server.errors import ApiError, envelope, error_response, install_error_handlers, to_api_error


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (InvalidParameter("top_p", "too high"), 400, "invalid_request_error", "top_p", None),
        (QueueFull("full"), 503, "server_error", None, "queue_full"),
        (EngineDead("gone"), 503, "server_error", None, "engine_dead"),
        (RequestFailed("fault"), 500, "server_error", None, "request_failed"),
        (HTTPException(404, "Not Found"), 404, "invalid_request_error", None, None),
        (ApiError(413, "big", code="body_too_large"), 413, "invalid_request_error", None, "body_too_large"),
        (KeyError("secret"), 500, "server_error", None, "internal_error"),
    ],
)
def test_each_error_has_its_status_and_envelope(error, status, kind, param, code):
    api_error = to_api_error(error)
    body = envelope(api_error).model_dump()["error"]
    assert api_error.status_code == status
    assert set(body) == {"message", "type", "param", "code"}
    assert (body["type"], body["param"], body["code"]) == (kind, param, code)


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/v1/nope", "there is no endpoint '/v1/nope'; /docs lists those there are"),
        ("POST", "/%0a" + "x" * 5000, rf"there is no endpoint '/\n{'x' * 126}'; /docs lists those there are"),
        ("PATCH", "/thing", "'/thing' does not answer PATCH; it takes DELETE"),
    ],
)
def test_what_nothing_answers_is_named(serve_asgi, method, path, message):
    app = FastAPI()
    install_error_handlers(app)
    app.delete("/thing")(lambda: None)
    answer = httpx.request(method, serve_asgi(app).url + path, trust_env=False, timeout=30)
    assert answer.json()["error"]["message"] == message


def test_a_full_queue_invites_to_retry():
    assert error_response(QueueFull("full")).headers["retry-after"] == "1"


def test_what_is_not_expected_tells_nothing():
    assert "secret" not in error_response(KeyError("secret")).body.decode()


def test_a_long_message_is_cut():
    body = json.loads(error_response(InvalidParameter("stop", "x" * 10**6)).body)
    assert len(body["error"]["message"]) < 1000


def test_an_application_answers_every_error_in_the_envelope(serve_asgi):
    app = FastAPI()
    install_error_handlers(app)

    @app.get("/number/{number}")
    async def number(number: int) -> None:
        raise {0: ZeroDivisionError("secret"), 1: QueueFull("full")}[number]

    url = serve_asgi(app).url
    answers = {
        path: httpx.get(f"{url}{path}", trust_env=False, timeout=30)
        for path in ("/number/0", "/number/1", "/number/x", "/nope")
    }
    answers["method"] = httpx.post(f"{url}/number/1", trust_env=False, timeout=30)
    assert {path: answer.status_code for path, answer in answers.items()} == {
        "/number/0": 500,
        "/number/1": 503,
        "/number/x": 400,
        "/nope": 404,
        "method": 405,
    }
    assert all(set(answer.json()) == {"error"} for answer in answers.values())
    assert answers["method"].headers["allow"] == "GET"
    assert (
        answers["/number/x"]
        .json()["error"]["message"]
        .startswith("path.number: Input should be a valid integer")
    )
