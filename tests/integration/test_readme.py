"""The README's commands do what it says, with real weights: a server, curl, the terminal, Python."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[2] / "README.md").read_text()
BIN = Path(sys.executable).parent


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def command_with(word):
    return next(block for block in blocks("sh") if word in block)


@pytest.fixture(scope="module")
def url():
    with subprocess.Popen(
        [BIN / "minivllm", "serve", "--port", "0", "--dtype", "float32"],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        found = None
        while found is None:
            assert server.poll() is None
            found = re.search(r"ready at (http://\S+)", server.stdout.readline())
        yield found[1]
        server.terminate()
        assert server.wait(60) == 0


def curl(url, word):
    command = command_with(word).replace("http://127.0.0.1:8000", url).replace("\\\n", " ")
    result = subprocess.run([*shlex.split(command), "-sS"], capture_output=True, text=True, check=True)
    return result.stdout


def test_a_completion(url):
    answer = json.loads(curl(url, "The capital of France is"))
    assert "Paris" in answer["choices"][0]["text"]
    assert answer["usage"] == {
        **answer["usage"],
        "prompt_tokens": 5,
        "completion_tokens": 8,
        "total_tokens": 13,
    }


def test_a_stream(url):
    events = curl(url, "stream").strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert chunks[-1]["choices"][0]["finish_reason"] in {"stop", "length"}
    body = json.loads(re.search(r"-d '(.*?)'", command_with("stream"), flags=re.S)[1])
    whole = httpx.post(f"{url}/v1/completions", json={**body, "stream": False}, timeout=60).json()
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]


def test_the_terminal():
    command = shlex.split(command_with("minivllm generate"))
    assert command[:2] == ["uv", "run"]
    result = subprocess.run([BIN / command[2], *command[3:]], capture_output=True, text=True, check=True)
    assert "Paris" in result.stdout
    assert re.search(r"[\d.]+ tokens/s", result.stdout + result.stderr)


def test_python():
    [program] = blocks("python")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "The capital of France is  Paris" in result.stdout
    assert "The capital of Italy is  Rome" in result.stdout
