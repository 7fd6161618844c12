import pytest

from minivllm_scheduler import FinishReason


def watch(world, monkeypatch):
    """Records the order in which the loop launches steps and takes results."""
    calls = []
    launch, result = world.executor.launch, world.executor.result
    monkeypatch.setattr(
        world.executor, "launch", lambda out: (calls.append(f"launch {out.step_id}"), launch(out))
    )
    monkeypatch.setattr(
        world.executor, "result", lambda: (taken := result(), calls.append(f"result {taken.step_id}"))[0]
    )
    return calls


def test_in_order_every_pass_returns_what_it_launched(make_world, monkeypatch):
    world = make_world(16, run_ahead=False)
    calls = watch(world, monkeypatch)
    world.add("a", [1, 2], 3)
    for num_tokens in (1, 2, 3):
        world.step()
        assert len(world.outputs["a"]) == num_tokens
    assert calls == [f"{call} {step}" for step in range(3) for call in ("launch", "result")]


def test_one_ahead_the_next_step_is_launched_before_a_result_is_taken(make_world, monkeypatch):
    world = make_world(16, run_ahead=True)
    calls = watch(world, monkeypatch)
    world.add("a", [1, 2], 3)
    lengths = []
    while world.loop.has_work:
        world.step()
        lengths.append(len(world.outputs["a"]))
    assert lengths == [0, 1, 2, 3]
    assert calls == ["launch 0", "launch 1", "result 0", "launch 2", "result 1", "result 2"]


def test_a_pass_with_nothing_to_do_does_nothing(make_world, run_ahead):
    world = make_world(16, run_ahead=run_ahead)
    assert not world.loop.has_work
    assert world.loop.step(0.0) == ()


def test_a_step_in_flight_is_work_even_when_no_request_is_left(make_world):
    world = make_world(16, run_ahead=True)
    world.add("a", [1, 2], 9)
    world.step()
    world.abort("a")
    assert world.loop.has_work
    world.step()
    assert not world.loop.has_work
    assert world.outputs["a"] == ()


@pytest.mark.parametrize("place", ["launch", "result"])
@pytest.mark.parametrize("keeps_launched_steps", [False, True])
def test_after_a_failure_the_loop_serves_whoever_was_not_in_it(
    make_world, run_ahead, place, keeps_launched_steps
):
    world = make_world(16, run_ahead=run_ahead, max_num_seqs=2)
    world.executor.keeps_launched_steps = keeps_launched_steps
    for name in ("a", "b", "c"):
        world.add(name, [1, 2], 6)
    world.step()
    world.executor.fail_at = place
    with pytest.raises(world.executor.Fault):
        world.step()
    assert world.fail() == ("a", "b")
    world.add("a", [2, 1], 6)
    world.drain()
    assert world.finish_reasons == {"c": FinishReason.LENGTH, "a": FinishReason.LENGTH}


def test_both_modes_give_the_same_tokens(make_world):
    outputs = []
    for run_ahead in (False, True):
        world = make_world(6, run_ahead=run_ahead, watermark=0.0, max_num_batched_tokens=8)
        for index in range(6):
            world.add(f"r{index}", [index] * (index + 1), 12, stop_token_ids=frozenset({5}))
        world.drain()
        assert world.num_preemptions
        outputs.append((world.outputs, world.finish_reasons))
    assert outputs[0] == outputs[1]
