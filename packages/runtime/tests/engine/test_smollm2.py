"""Real weights: SmolLM2-135M-Instruct against `transformers` in float32, token for token; on a GPU, too."""

import pytest
import torch

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device.choose_ops import choose_ops
from minivllm_runtime.engine.builder import BuiltEngine, assemble_engine
from minivllm_runtime.llm import LLM
from minivllm_runtime.messages import AddRequests, EngineRequest
from minivllm_runtime.sampling_params import SamplingParams

from ..reference.devices import on_cuda
from ..reference.smollm2 import smollm2_checkpoint, smollm2_decoder, smollm2_reference
from ..reference.tiny_transformers import greedy_reference

pytestmark = pytest.mark.slow

NUM_TOKENS = {"cpu": 12, "cuda": 48}
TEXTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4,",
    "The capital of France is",
]
BLOCK_SIZE = 4


@pytest.fixture(scope="module", params=["cpu", on_cuda("cuda")])
def device(request):
    return request.param


@pytest.fixture(scope="module")
def checkpoint():
    return smollm2_checkpoint()


@pytest.fixture(scope="module")
def reference(device):
    return smollm2_reference(device)


@pytest.fixture(scope="module")
def prompts(checkpoint):
    return [checkpoint.load_tokenizer().encode(text) for text in TEXTS]


@pytest.fixture(scope="module")
def expected(device, reference, prompts):
    return [greedy_reference(reference, prompt, NUM_TOKENS[device]) for prompt in prompts]


@pytest.fixture(scope="module")
def decoder(device, checkpoint):
    model = smollm2_decoder().to(device)
    model.pack(choose_ops(torch.device(device), torch.float32, checkpoint.config))
    return model


@pytest.fixture
def build(device, checkpoint, decoder):
    """Assembles an engine around the one decoder."""

    def build(**settings) -> BuiltEngine:
        config = EngineConfig(**{"num_blocks": 200, "block_size": BLOCK_SIZE, "max_num_seqs": 8, **settings})
        return assemble_engine(
            config,
            decoder,
            checkpoint.load_tokenizer(),
            checkpoint.config,
            dtype=torch.float32,
            device=torch.device(device),
        )

    return build


def run(core, prompts, num_tokens):
    """Ids and cached prompt tokens of each prompt, all added at once."""
    requests = [
        EngineRequest(
            request_id=str(i),
            prompt_token_ids=tuple(ids),
            max_tokens=num_tokens,
            stop_token_ids=frozenset(smollm2_checkpoint().config.eos_token_ids),
            temperature=0.0,
        )
        for i, ids in enumerate(prompts)
    ]
    ids = {request.request_id: () for request in requests}
    cached = {}
    core.execute([AddRequests(request.request_id, (request,)) for request in requests])
    while core.has_work:
        for output in core.step():
            assert output.error is None
            ids[output.request_id] += output.token_ids
            cached[output.request_id] = output.num_cached_tokens
    return [*ids.values()], [cached[request.request_id] for request in requests]


@pytest.mark.parametrize(
    ("settings", "is_tight"),
    [
        ({"max_num_seqs": 1, "run_ahead": False}, False),
        ({"run_ahead": False}, False),
        ({"run_ahead": True}, False),
        ({"run_ahead": True, "max_num_batched_tokens": 4, "max_num_seqs": 4}, False),
        ({"run_ahead": True}, True),
    ],
    ids=["alone", "together", "one step ahead", "chunks of four", "preempted"],
)
def test_greedy_equals_transformers(device, build, prompts, expected, settings, is_tight):
    if is_tight:
        longest = max(map(len, prompts)) + NUM_TOKENS[device]
        settings = {**settings, "num_blocks": -(-longest // BLOCK_SIZE) + 7}
    core = build(**settings).core
    ids, _ = run(core, prompts, NUM_TOKENS[device])
    assert ids == expected
    assert (core.stats().num_preemptions > 0) == is_tight


def test_greedy_with_prefix_hits_equals_transformers(device, build, prompts, expected):
    core = build(run_ahead=True).core
    run(core, prompts, 1)
    ids, cached = run(core, prompts, NUM_TOKENS[device])
    assert ids == expected
    assert cached == [(len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE for prompt in prompts]


@torch.inference_mode()
def test_log_probabilities_equal_transformers(device, build, reference):
    built = build(max_num_batched_tokens=16)
    params = SamplingParams(max_tokens=8, seed=1, n=2, logprobs=5, prompt_logprobs=3, repetition_penalty=1.2)
    for output in LLM.from_engine(built).generate(TEXTS, params, use_tqdm=False):
        for choice in output.outputs:
            ids = [*output.prompt_token_ids, *choice.token_ids]
            logits = reference(torch.tensor([ids], device=device)).logits[0]
            expected = torch.log_softmax(logits, dim=-1).cpu()
            scored = [*output.prompt_logprobs[1:], *choice.logprobs]
            assert [logprob.token_id for logprob in scored] == ids[1:]
            for logprob, row in zip(scored, expected[:-1], strict=True):
                assert logprob.logprob == pytest.approx(row[logprob.token_id].item(), abs=1e-3)
                for top in logprob.top:
                    assert top.logprob == pytest.approx(row[top.token_id].item(), abs=1e-3)
                largest = row.topk(len(logprob.top)).values.tolist()
                assert [top.logprob for top in logprob.top] == pytest.approx(largest, abs=1e-3)
