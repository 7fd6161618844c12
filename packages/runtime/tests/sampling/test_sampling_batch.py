import pytest
import torch

from minivllm_runtime.engine.messages import EngineRequest
from minivllm_runtime.sampling.sampling_batch import SamplingBatch


@pytest.mark.parametrize(("temperature", "is_greedy"), [(0, True), (1e-6, True), (1e-5, False), (1.0, False)])
def test_temperatures_near_zero_are_greedy(temperature, is_greedy):
    request = EngineRequest(request_id="r", prompt_token_ids=(1,), max_tokens=1, temperature=temperature)
    batch = SamplingBatch.build([request], [0], 8, torch.device("cpu"))
    assert (batch.random is None) is is_greedy
