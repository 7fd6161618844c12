"""An engine in a process of its own: same answers, and each side notices the other's end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from minivllm_runtime import LLM, EngineDead, InvalidParameter, ModelLoadError, SamplingParams
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.engine.process.engine_process import EngineProcess
from minivllm_runtime.engine.process.remote_engine import RemoteEngine

SETTINGS = {"dtype": "float32", "device": "cpu", "num_blocks": 64, "max_model_len": 512}
CONFIG = EngineConfig(engine_process=True, **SETTINGS)
ENDLESS = SamplingParams(max_tokens=400, ignore_eos=True)
PROMPTS = ["The capital of France is", "1, 2, 3, 4,"]


async def generate(engine, prompts, **params):
    """Token ids of each prompt."""
    ids = [await engine.encode(prompt) for prompt in prompts]
    submission = await engine.submit(
        ids, SamplingParams(temperature=0, **params), request_id=f"{prompts[0]} {time.monotonic()}"
    )
    generated = [[] for _ in prompts]
    async with aclosing(submission):
        async for deltas in submission:
            for delta in deltas:
                generated[delta.index] += delta.token_ids
    return generated


def run(scenario):
    """Run `scenario(engine)` with an engine process, which must not outlive it."""

    async def main(engine):
        await engine.start()
        try:
            async with asyncio.timeout(60):
                await scenario(engine)
        finally:
            await engine.shutdown()

    remote = RemoteEngine.spawn(CONFIG)
    process, folder = remote._process, Path(remote.address.removeprefix("ipc://")).parent
    asyncio.run(main(AsyncEngine(remote)))
    assert not is_running(process.pid)
    assert not folder.exists()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def becomes_true(condition):
    """Whether a condition that another process makes true holds within more time than any machine needs."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_answers_equal_those_of_the_engine_in_this_process():
    llm = LLM("smollm2", **SETTINGS)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=12), use_tqdm=False)
    expected = [list(output.outputs[0].token_ids) for output in outputs]

    async def scenario(engine):
        assert await generate(engine, PROMPTS, max_tokens=12) == expected
        assert engine.max_model_len == 512
        assert (engine.dtype_name, engine.device_name, engine.num_blocks) == ("float32", "cpu", 64)
        assert engine.kernels == "PyTorch"
        while engine.stats().num_blocks_in_use:
            await asyncio.sleep(0.01)

    run(scenario)


def test_refusals_and_aborts_cross_the_border():
    async def scenario(engine):
        with pytest.raises(InvalidParameter, match="512"):
            await generate(engine, PROMPTS[:1], max_tokens=511)
        ids = await engine.encode(PROMPTS[0])
        submission = await engine.submit([ids], ENDLESS, request_id="left alone")
        async with aclosing(submission):
            async for _ in submission:
                break
        while engine.stats().num_running:
            await asyncio.sleep(0.01)
        assert engine.stats().num_blocks_in_use == 0

    run(scenario)


def test_a_killed_engine_is_noticed():
    async def scenario(engine):
        async def generate_and_kill():
            ids = await engine.encode(PROMPTS[0])
            submission = await engine.submit([ids], ENDLESS, request_id="doomed")
            deltas = aiter(submission)
            await anext(deltas)
            os.kill(engine._connection._process.pid, signal.SIGKILL)
            async for _ in deltas:
                pass

        with pytest.raises(EngineDead, match="the engine process ended"):
            await generate_and_kill()
        assert not engine.is_alive
        with pytest.raises(EngineDead):
            await generate(engine, PROMPTS, max_tokens=1)

    run(scenario)


def test_whoever_comes_while_the_engine_stops_hears_that_it_does():
    async def scenario(engine):
        ids = await engine.encode(PROMPTS[0])
        left = await engine.submit([ids], ENDLESS, request_id="left")
        stopping = asyncio.create_task(engine.shutdown())
        num_moments = 0
        while not stopping.done():
            await asyncio.sleep(0)
            num_moments += 1
            with pytest.raises(EngineDead, match="shut down"):
                await engine.submit([ids], SamplingParams(), request_id="later")
            await left.aclose()
        assert num_moments > 1
        await stopping

    run(scenario)


def test_the_engine_ends_with_its_parent():
    program = f"""
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.process.engine_process import EngineProcess
process = EngineProcess.spawn(EngineConfig(**{SETTINGS!r}))
print(process.pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        engine_pid = int(parent.stdout.readline())
        assert is_running(engine_pid)
        parent.kill()
        assert becomes_true(lambda: not is_running(engine_pid))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model": "/no/such/folder"}, ModelLoadError, "no such file or folder"),
        ({"num_blocks": 1, "max_model_len": 512}, InvalidParameter, "max_model_len"),
    ],
)
def test_what_keeps_an_engine_from_starting_is_raised_here(settings, error, message):
    with pytest.raises(error, match=message) as raised:
        AsyncEngine.build(EngineConfig(engine_process=True, device="cpu", **settings))
    assert getattr(raised.value, "param", None) == ("max_model_len" if error is InvalidParameter else None)


def test_the_log_says_when_the_engine_process_ended_unasked(caplog):
    killed = EngineProcess.spawn(EngineConfig(**SETTINGS))
    os.kill(killed.pid, signal.SIGKILL)
    assert becomes_true(lambda: caplog.records)
    killed.close()
    EngineProcess.spawn(EngineConfig(**SETTINGS)).close()
    assert [record.getMessage() for record in caplog.records] == [
        "the engine process ended with exit code -9: nothing is generated any more"
    ]


def test_what_the_engine_process_logs_is_logged_here(caplog):
    async def leave_a_request_open(engine):
        await engine.start()
        ids = await engine.encode(PROMPTS[0])
        submission = await engine.submit([ids], ENDLESS, request_id="left alone")
        await anext(aiter(submission))
        await engine.shutdown()

    process = EngineProcess.spawn(CONFIG)
    try:
        asyncio.run(leave_a_request_open(AsyncEngine(RemoteEngine(process.address))))
        assert becomes_true(lambda: caplog.records)
    finally:
        process.close()
    (record,) = caplog.records
    assert record.name == "minivllm_runtime.engine.process.engine_server"
    assert (record.levelname, record.getMessage()) == ("WARNING", "a client is gone, with 1 requests open")


def test_who_spawns_can_refuse_a_model_before_its_weights_are_read(monkeypatch, tmp_path):
    def refuse(model_config):
        raise InvalidParameter("max_tokens", f"more than {model_config.max_position_embeddings}")

    stages = []
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(InvalidParameter, match="more than 8192"):
        AsyncEngine.build(CONFIG, progress=lambda *stage: stages.append(stage), on_model=refuse)
    assert stages == []
    assert not list(tmp_path.glob("minivllm-*"))


def test_a_program_whose_parent_is_gone_before_it_asked_for_anything_ends_quietly():
    finished = subprocess.run(
        [sys.executable, "-m", "minivllm_runtime.engine.process"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (1, b"", b"")


def test_a_program_that_cannot_serve_says_so_and_ends_while_its_parent_listens():
    with subprocess.Popen(
        [sys.executable, "-m", "minivllm_runtime.engine.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        program.stdin.write(msgspec.json.encode(EngineConfig(model="/no/such/folder")) + b"\n")
        program.stdin.flush()
        assert program.wait(120) == 1
        assert b"no such file or folder" in program.stdout.read()
        assert program.stderr.read() == b""


def test_nobody_at_the_address(monkeypatch, tmp_path):
    monkeypatch.setattr("minivllm_runtime.engine.process.remote_engine._DESCRIPTION_TIMEOUT_MS", 50)
    with pytest.raises(EngineDead, match="no engine answers"):
        RemoteEngine(f"ipc://{tmp_path}/engine")


@pytest.mark.parametrize(
    "module",
    [
        "async_engine",
        "process.remote_engine",
        # Its imports take seconds, in which it must hear of its parent's end.
        "process.__main__",
    ],
)
def test_neither_a_client_nor_the_beginning_of_an_engine_needs_a_tensor_library(module):
    program = f"""
import sys
import minivllm_runtime.engine.{module}
print("torch" in sys.modules or "transformers" in sys.modules)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "False\n"


def test_a_program_whose_parent_goes_while_it_starts_ends_quietly():
    finished = subprocess.run(
        [sys.executable, "-m", "minivllm_runtime.engine.process"],
        input=msgspec.json.encode(CONFIG) + b"\n",
        capture_output=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, b"")
