"""The worker protocol, with stand-ins for the peers' packages: the real ones need environments of their own."""

import os
import sys
import tempfile
import textwrap

import pytest

from minivllm_bench.engines.dummy_model import write_dummy_model
from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.engines.peer_process import open_nano_vllm, open_vllm
from minivllm_bench.errors import EngineFailed, InvalidSetting
from minivllm_bench.model_configs import CONFIGS
from minivllm_bench.workloads import BenchRequest

VLLM = """
    import os
    from types import SimpleNamespace as Record

    print("vLLM prints this on stdout")

    class SamplingParams:
        def __init__(self, *, temperature, max_tokens, ignore_eos):
            assert ignore_eos
            self.temperature, self.max_tokens = temperature, max_tokens

    class LLM:
        def __init__(self, *, model, enable_prefix_caching, **options):
            if not os.path.isdir(model):
                raise ValueError(f"no model at {model}")
            assert not enable_prefix_caching
            config = Record(get_vocab_size=lambda: 77)
            self.llm_engine = Record(model_config=config)
            self.text = f"{options} {os.environ.get('VLLM_CPU_OMP_THREADS_BIND')}"

        def generate(self, prompts, params, use_tqdm):
            print("and this")
            if prompts[0]["prompt_token_ids"] == [66]:
                raise RuntimeError("the engine core died")
            return [
                Record(outputs=[Record(token_ids=prompt["prompt_token_ids"] * param.max_tokens,
                                       text=f"{self.text} {param.temperature}")])
                for prompt, param in zip(prompts, params, strict=True)
            ]
"""
NANO_VLLM = """
    import os

    class SamplingParams:
        def __init__(self, *, temperature, max_tokens, ignore_eos):
            assert temperature > 0 and ignore_eos
            self.temperature, self.max_tokens = temperature, max_tokens

    class LLM:
        def __init__(self, model, *, gpu_memory_utilization):
            self.text = f"{sorted(os.listdir(model))} {gpu_memory_utilization:.2f}"

        def generate(self, prompts, params, use_tqdm):
            return [
                {"token_ids": prompt * param.max_tokens, "text": f"{self.text} {param.temperature}"}
                for prompt, param in zip(prompts, params, strict=True)
            ]
"""
TORCH = """
    class cuda:
        def mem_get_info():
            return 70, 100  # others hold 30 %
"""
TRANSFORMERS = """
    class AutoConfig:
        vocab_size = 78

        def from_pretrained(model):
            return AutoConfig
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Settings for a Python that finds the stand-ins; its logs go to `tmp_path`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modules = {"vllm": VLLM, "nanovllm": NANO_VLLM, "torch": TORCH, "transformers": TRANSFORMERS}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
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
            "nano_vllm_python": python,
        }
        return EngineSettings(**(values | changes))

    return make


def text_of(engine):
    text = engine.run([BenchRequest((5,), 1)]).completions[0].text
    engine.close()
    return text


@pytest.fixture
def engine(settings):
    engine = open_vllm(settings())
    yield engine
    engine.close()


def test_one_worker_serves_several_runs_whatever_vllm_prints(engine):
    assert engine.vocab_size == 77
    for length in (1, 3):
        run = engine.run([BenchRequest((5,), length), BenchRequest((6,), 2)])
        assert [completion.token_ids for completion in run.completions] == [(5,) * length, (6, 6)]
        assert run.seconds > 0


def test_vllm_on_a_cpu_gets_as_many_cores_as_its_peers_get_threads(settings):
    allowed = sorted(os.sched_getaffinity(0))
    for num_threads in {1, len(allowed)}:
        text = text_of(open_vllm(settings(num_threads=num_threads)))
        assert f" {','.join(map(str, allowed[:num_threads]))} " in text
        assert "'kv_cache_memory_bytes': 4294967296" in text


def test_vllm_on_a_gpu_gets_its_share_of_memory_and_may_fill_in_weights(settings):
    text = text_of(open_vllm(settings(device="cuda", gpu_memory_share=0.3)))
    assert "'load_format': 'auto', 'gpu_memory_utilization': 0.3} None 0.0" in text
    text = text_of(open_vllm(settings(device="cuda", dummy_weights=True, temperature=0.6)))
    assert "'load_format': 'dummy', 'gpu_memory_utilization': 0.9} None 0.6" in text


def test_nano_vllm_gets_a_share_of_memory_beside_what_others_hold(settings, tiny_llama):
    engine = open_nano_vllm(
        settings(model=str(tiny_llama), device="cuda", gpu_memory_share=0.3, temperature=0.6)
    )
    assert engine.vocab_size == 78
    assert [completion.token_ids for completion in engine.run([BenchRequest((5,), 2)]).completions] == [
        (5, 5)
    ]
    assert text_of(engine).endswith("0.60 0.6")


def test_nano_vllm_gets_random_weights_as_a_folder_with_weights(settings, tmp_path):
    folder = tmp_path / "shape"
    folder.mkdir()
    shape = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
    write_dummy_model({**CONFIGS["qwen3-0.6b"], **shape}, folder)
    engine = open_nano_vllm(settings(model=str(folder), device="cuda", dummy_weights=True, temperature=0.6))
    assert "'model.safetensors'" in text_of(engine)


def test_closing_ends_the_process_and_may_be_repeated(engine):
    pid = engine._process.pid
    engine.close()
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_model_that_does_not_load_is_one_line_with_vllms_own_reason(settings):
    with pytest.raises(EngineFailed, match=r"^vllm ended with status 1: ValueError: no model at nowhere \("):
        open_vllm(settings(model="nowhere"))


def test_the_log_is_kept_only_after_a_failure(settings, tmp_path):
    open_vllm(settings()).close()
    assert list(tmp_path.glob("*.log")) == []
    with pytest.raises(EngineFailed) as caught:
        open_vllm(settings(model="nowhere"))
    (log,) = tmp_path.glob("*.log")
    assert str(log) in str(caught.value)
    assert "Traceback" in log.read_text()


def test_an_engine_that_dies_says_why_and_stays_dead(engine):
    with pytest.raises(EngineFailed, match="the engine core died"):
        engine.run([BenchRequest((66,), 1)])


def test_an_interpreter_that_is_missing_is_named(settings, tmp_path):
    with pytest.raises(EngineFailed, match="no-python"):
        open_vllm(settings(vllm_python=tmp_path / "no-python"))


def test_an_engine_that_is_not_installed_is_refused_with_the_way_out(settings):
    with pytest.raises(InvalidSetting, match=r"engine vllm is not installed here.*--vllm-python"):
        open_vllm(settings(vllm_python=None))
    with pytest.raises(InvalidSetting, match=r"engine nano-vllm is not installed here.*--nano-vllm-python"):
        open_nano_vllm(settings(nano_vllm_python=None))


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"temperature": 0.6}, "cuda only, not on cpu"), ({"device": "cuda"}, "give --temperature")],
)
def test_what_nano_vllm_cannot_do_is_refused(settings, changes, named):
    with pytest.raises(InvalidSetting, match=named):
        open_nano_vllm(settings(**changes))
