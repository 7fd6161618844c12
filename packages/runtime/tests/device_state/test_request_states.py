import torch

from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.messages import EngineRequest


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


def test_a_slot_has_the_sampling_parameters_of_its_last_request():
    states = RequestStates(1, 16, 4, torch.device("cpu"))
    first = EngineRequest(
        request_id="a", prompt_token_ids=(1,), max_tokens=4, temperature=0.7, top_k=9, seed=3
    )
    last = EngineRequest(
        request_id="b",
        prompt_token_ids=(1, 2),
        max_tokens=4,
        temperature=1e-6,
        top_p=0.5,
        min_p=0.25,
        seed=2**64 - 1,
        choice=2,
    )
    for request in (first, last):
        states.admit(request.request_id, request.prompt_token_ids, len(request.prompt_token_ids), [7])
        states.set_sampling(request)
        states.flush()
        states.release(request.request_id)
    assert states.sampling.floats.tolist() == [[0.0, 0.5, 0.25], [0.0, 0.0, 0.0]]
    assert states.sampling.integers.tolist() == [[0, -1, 2, 2], [0, 0, 0, 0]]
