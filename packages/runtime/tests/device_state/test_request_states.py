import torch

from minivllm_runtime.device_state.request_states import RequestStates


def test_slots_are_reused_and_release_is_idempotent():
    states = RequestStates(2, 16, 4, torch.device("cpu"))
    states.admit("a", [1, 2, 3], 3, [7])
    states.admit("b", [4], 1, [8])
    states.flush()
    slot = states.slot("a")
    states.release("a")
    states.release("a")
    states.release("never admitted")
    states.admit("c", [9, 9], 1, [3, 5])
    states.flush()
    assert (states.slot("c"), len(states), states.num_prompt_tokens("c")) == (slot, 2, 1)
    assert states.token_ids[slot, :2].tolist() == [9, 9]
    assert states.block_tables[slot, :2].tolist() == [3, 5]


def test_blocks_are_appended_behind_those_of_admission():
    states = RequestStates(1, 16, 4, torch.device("cpu"))
    states.admit("a", [1], 1, [7])
    states.append_blocks("a", [2, 5])
    states.append_blocks("a", [])
    states.append_blocks("a", [1])
    states.flush()
    assert states.block_tables[0].tolist() == [7, 2, 5, 1]
