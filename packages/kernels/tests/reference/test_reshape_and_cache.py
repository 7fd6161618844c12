import torch

from minivllm_kernels.reference.reshape_and_cache import reshape_and_cache


def test_each_token_lands_in_its_slot_and_nowhere_else():
    num_blocks, block_size = 5, 4
    key, value = torch.randn((2, 6, 3, 8))
    caches = torch.full((2, num_blocks, 3, block_size, 8), float("nan"))
    slots = [19, 0, 7, 8, 3, 4]
    reshape_and_cache(key, value, caches[0], caches[1], torch.tensor(slots))
    by_slot = caches.transpose(2, 3).reshape(2, num_blocks * block_size, 3, 8)
    for token, slot in enumerate(slots):
        assert torch.equal(by_slot[0, slot], key[token])
        assert torch.equal(by_slot[1, slot], value[token])
    untouched = [slot for slot in range(num_blocks * block_size) if slot not in slots]
    assert by_slot[:, untouched].isnan().all()
