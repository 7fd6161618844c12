"""On a CUDA device step N+1 is launched while step N still runs there: events recorded behind the steps show it."""

import pytest
import torch

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device.choose_ops import choose_ops
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.loader.weights import dummy_weights
from minivllm_runtime.messages import AddRequests, EngineRequest
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.models.decoder import Decoder
from minivllm_runtime.worker.model_runner import ModelRunner
from minivllm_scheduler import Executor, SchedulerOutput, StepResult

from ..reference.devices import NEEDS_CUDA
from ..reference.tiny_transformers import VOCAB_SIZE
from ..scripted.byte_level import byte_level_tokenizer

pytestmark = NEEDS_CUDA

NUM_PROMPTS, PROMPT_LEN = 32, 2048
STEP_TOKENS = 4096
NUM_STEPS = NUM_PROMPTS * PROMPT_LEN // STEP_TOKENS

WIDE = ModelConfig(
    architecture="llama",
    vocab_size=VOCAB_SIZE,
    hidden_size=2048,
    intermediate_size=5632,
    num_layers=16,
    num_heads=32,
    num_kv_heads=4,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=PROMPT_LEN + 1,
)


class Watch:
    """An executor around that of an engine: asks, behind each launch, whether the step before it still runs."""

    def __init__(self, executor: Executor, runner: ModelRunner) -> None:
        self._executor = executor
        self._runner = runner
        self.found_running: list[bool] = []

    def launch(self, output: SchedulerOutput) -> None:
        in_flight = self._runner._in_flight
        end_of_last = in_flight[-1].ids._done if in_flight else None
        self._executor.launch(output)
        self.found_running.append(end_of_last is not None and not end_of_last.query())

    def result(self) -> StepResult:
        return self._executor.result()


def wide_engine(run_ahead: bool) -> EngineCore:
    device, dtype = torch.device("cuda"), torch.float16
    with device:
        decoder = Decoder(WIDE, WIDE.max_position_embeddings)
    for parameter in decoder.parameters():
        if parameter.ndim > 1:
            parameter.data = parameter.to(dtype)
    dummy_weights(decoder)
    decoder.pack(choose_ops(device, dtype, WIDE))
    config = EngineConfig(
        num_blocks=NUM_PROMPTS * PROMPT_LEN // 16,
        max_num_seqs=NUM_PROMPTS,
        max_num_batched_tokens=STEP_TOKENS,
        enable_prefix_caching=False,
        run_ahead=run_ahead,
    )
    return assemble_engine(config, decoder, byte_level_tokenizer(), WIDE, dtype=dtype, device=device).core


@pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])
def test_a_step_is_launched_while_the_one_before_it_runs(run_ahead):
    """Prompts of 16 large steps: each takes the device several milliseconds, and launching a graph a fraction of one.

    The event behind step N has not happened when the launch of N+1 returns, unless the host waited for N somewhere on
    the way: for its ids, by a copy from memory that is not pinned, by an allocation, by reading a size back. Then this
    fails. It also fails if launching costs more than the step, as without graphs; a host that is held up for a few
    steps is no failure. In order, nothing may be in flight at a launch, which shows that the watch can tell.
    """
    core = wide_engine(run_ahead)
    watch = core._loop._executor = Watch(core._loop._executor, core._runner)
    for name in ("warm-up", "watched"):
        watch.found_running.clear()
        core.execute(
            [
                AddRequests(
                    name,
                    tuple(
                        EngineRequest(
                            request_id=f"{name} {index}",
                            prompt_token_ids=(index,) * PROMPT_LEN,
                            max_tokens=1,
                            temperature=0.0,
                        )
                        for index in range(NUM_PROMPTS)
                    ),
                )
            ]
        )
        while core.has_work:
            assert all(output.error is None for output in core.step())
    assert len(watch.found_running) == NUM_STEPS
    if run_ahead:
        assert sum(watch.found_running) >= NUM_STEPS * 3 // 4, watch.found_running
    else:
        assert not any(watch.found_running)
