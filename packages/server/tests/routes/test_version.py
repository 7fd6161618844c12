from importlib.metadata import version

import httpx


def test_the_version_is_that_of_the_package(serve_script):
    answer = httpx.get(serve_script("x").url + "/version", trust_env=False, timeout=30)
    assert answer.json() == {"version": version("minivllm-server")}
