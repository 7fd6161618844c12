"""The worker protocol, with a stand-in for the vllm package: the real one needs an environment of its own."""

import os
import sys
import tempfile
import textwrap

import pytest

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.engines.vllm_process import VllmEngine
from minivllm_bench.errors import EngineFailed, InvalidSetting
from minivllm_bench.workloads import BenchRequest

STAND_IN = """
    import os
    from types import SimpleNamespace as Record

    print("vLLM prints this on stdout")

    class SamplingParams:
        def __init__(self, *, temperature, max_tokens, ignore_eos):
            assert temperature == 0.0 and ignore_eos
            self.max_tokens = max_tokens

    class LLM:
        def __init__(self, *, model, dtype, enable_prefix_caching, kv_cache_memory_bytes):
            if not os.path.isdir(model):
                raise ValueError(f"no model at {model}")
            assert not enable_prefix_caching
            config = Record(get_vocab_size=lambda: 77)
            self.llm_engine = Record(model_config=config)
            self.binding = os.environ["VLLM_CPU_OMP_THREADS_BIND"]

        def generate(self, prompts, params, use_tqdm):
            print("and this")
            if prompts[0]["prompt_token_ids"] == [66]:
                raise RuntimeError("the engine core died")
            return [
                Record(outputs=[Record(token_ids=prompt["prompt_token_ids"] * param.max_tokens,
                                       text=self.binding)])
                for prompt, param in zip(prompts, params, strict=True)
            ]
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Settings for a Python that finds the stand-in; its logs go to `tmp_path`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "vllm.py").write_text(textwrap.dedent(STAND_IN))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)

    def make(**changes):
        values = {
            "model": str(tmp_path),
            "dtype": "float32",
            "device": "cpu",
            "num_threads": 1,
            "vllm_python": python,
        }
        return EngineSettings(**(values | changes))

    return make


@pytest.fixture
def engine(settings):
    engine = VllmEngine.load(settings())
    yield engine
    engine.close()


def test_one_worker_serves_several_runs_whatever_vllm_prints(engine):
    assert engine.vocab_size == 77
    for length in (1, 3):
        run = engine.run([BenchRequest((5,), length), BenchRequest((6,), 2)])
        assert [completion.token_ids for completion in run.completions] == [(5,) * length, (6, 6)]
        assert run.seconds > 0


def test_vllm_gets_as_many_cores_as_its_peers_get_threads(settings):
    allowed = sorted(os.sched_getaffinity(0))
    for num_threads in {1, len(allowed)}:
        engine = VllmEngine.load(settings(num_threads=num_threads))
        cores = engine.run([BenchRequest((5,), 1)]).completions[0].text.split(",")
        assert [int(core) for core in cores] == allowed[:num_threads]
        engine.close()


def test_closing_ends_the_process_and_may_be_repeated(engine):
    pid = engine._process.pid
    engine.close()
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_model_that_does_not_load_is_one_line_with_vllms_own_reason(settings):
    with pytest.raises(EngineFailed, match=r"^vllm ended with status 1: ValueError: no model at nowhere \("):
        VllmEngine.load(settings(model="nowhere"))


def test_the_log_is_kept_only_after_a_failure(settings, tmp_path):
    VllmEngine.load(settings()).close()
    assert list(tmp_path.glob("*.log")) == []
    with pytest.raises(EngineFailed) as caught:
        VllmEngine.load(settings(model="nowhere"))
    (log,) = tmp_path.glob("*.log")
    assert str(log) in str(caught.value)
    assert "Traceback" in log.read_text()


def test_an_engine_that_dies_says_why_and_stays_dead(engine):
    with pytest.raises(EngineFailed, match="the engine core died"):
        engine.run([BenchRequest((66,), 1)])


def test_an_interpreter_that_is_missing_is_named(settings, tmp_path):
    with pytest.raises(EngineFailed, match="no-python"):
        VllmEngine.load(settings(vllm_python=tmp_path / "no-python"))


@pytest.mark.parametrize("changes", [{"vllm_python": None}, {"device": "cuda"}])
def test_what_vllm_cannot_run_on_is_refused(settings, changes):
    with pytest.raises(InvalidSetting, match="vllm"):
        VllmEngine.load(settings(**changes))
