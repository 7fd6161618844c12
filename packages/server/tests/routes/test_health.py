import httpx


def test_a_working_engine_is_healthy(serve_script):
    answer = httpx.get(serve_script("x").url + "/health", trust_env=False, timeout=30)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_load_balancer_may_ask_without_wanting_a_body(serve_script):
    answer = httpx.head(serve_script("x").url + "/health", trust_env=False, timeout=30)
    assert (answer.status_code, answer.content) == (200, b"")


def test_an_engine_that_is_gone_is_not(serve_script, becomes_true):
    server = serve_script("x")
    server.model.faults = [RuntimeError("out of order")] * 3
    httpx.post(server.url + "/v1/completions", json={"prompt": "a"}, trust_env=False, timeout=30)
    assert becomes_true(lambda: not server.engine.is_alive)
    answer = httpx.get(server.url + "/health", trust_env=False, timeout=30)
    assert answer.status_code == 503
    assert "out of order" in answer.json()["error"]["message"]
