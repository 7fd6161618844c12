import pytest
import torch

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_runtime.worker.memory import (
    activation_bytes,
    check_pool_fits,
    default_num_blocks,
    kv_block_bytes,
    kv_budget_bytes,
)

from .test_kv_cache import CONFIG

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bytes_of_a_block_are_those_that_one_more_block_takes(dtype):
    def allocated(num_blocks):
        return sum(layer.nbytes for layer in KVCacheTensors(CONFIG, num_blocks, 4, dtype, CPU).layers)

    assert kv_block_bytes(CONFIG, 4, dtype) == allocated(6) - allocated(5)


def test_a_pool_is_no_larger_than_useful_and_than_the_budget():
    assert default_num_blocks(1024, most_useful=10, budget_bytes=2**20) == 10
    assert default_num_blocks(1024, most_useful=10**6, budget_bytes=2**20) == 1024
    assert default_num_blocks(2**20, 10**6, kv_budget_bytes(CPU, 0.9, 0)) <= 4096


def test_a_block_that_does_not_fit_is_refused():
    with pytest.raises(InvalidParameter, match=f"{2**40} bytes"):
        default_num_blocks(2**40, most_useful=10, budget_bytes=2**30)


def test_activations_grow_with_tokens_and_with_rows():
    smallest = activation_bytes(CONFIG, 1, 1, torch.float16)
    assert activation_bytes(CONFIG, 1, 2, torch.float16) > smallest
    assert activation_bytes(CONFIG, 2, 1, torch.float16) > smallest


@pytest.mark.parametrize(("num_blocks", "block_bytes"), [(10**11, 1024), (1, 10**14)])
def test_a_chosen_pool_larger_than_the_memory_is_refused_with_the_numbers(num_blocks, block_bytes):
    with pytest.raises(InvalidParameter) as refusal:
        check_pool_fits(num_blocks, block_bytes, CPU)
    assert refusal.value.param == "num_blocks"
    assert all(str(number) in str(refusal.value) for number in (num_blocks, block_bytes))


def test_a_chosen_pool_may_be_larger_than_the_default():
    check_pool_fits(2**12 + 1, 2**20, CPU)
