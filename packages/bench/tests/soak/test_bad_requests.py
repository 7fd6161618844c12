from minivllm_bench.soak.bad_requests import BAD_REQUESTS


def test_each_is_another_request_with_a_client_error():
    assert len({bad.name for bad in BAD_REQUESTS}) == len(BAD_REQUESTS)
    assert len({(bad.method, bad.path, bad.body) for bad in BAD_REQUESTS}) == len(BAD_REQUESTS)
    assert all(400 <= bad.status < 500 for bad in BAD_REQUESTS)
