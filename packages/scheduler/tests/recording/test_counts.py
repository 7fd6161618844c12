from minivllm_scheduler.recording import Recording, RecordingCounts, Sampled, count


def test_the_counts_are_those_of_the_run(make_recorded_world, run_ahead):
    world, events = make_recorded_world(6, run_ahead, watermark=0.0, max_num_batched_tokens=8)
    for index in range(5):
        world.add(f"r{index}", [index] * (4 + index), 10)
    world.add("twin", [1] * 9, 3)
    for _ in range(4):
        world.step()
    world.abort("r3")
    world.drain()
    counts = count(Recording.of(events))
    stats = world.scheduler.stats()
    rows = [row for output in world.executor.outputs for row in output.rows]
    assert stats.total_preempted
    assert counts == RecordingCounts(
        requests=6,
        aborts=1,
        steps=stats.total_steps,
        tokens=stats.total_scheduled_tokens,
        sampled_tokens=sum(row.samples for row in rows),
        chunks=sum(not row.samples for row in rows),
        prefix_hits=sum(a.num_cached_tokens > 0 for o in world.executor.outputs for a in o.admitted),
        resumptions=stats.total_preempted,
    )


def test_an_id_used_again_is_no_resumption(make_recorded_world):
    world, events = make_recorded_world(16, run_ahead=False)
    for _ in range(2):
        world.add("a", [1, 2], 2)
        world.drain()
    assert count(Recording.of(events)).resumptions == 0


def test_without_outputs_only_inputs_are_counted(recording):
    counts = count(recording.without_outputs())
    assert (counts.steps, counts.tokens, counts.chunks, counts.prefix_hits, counts.resumptions) == (0,) * 5
    assert counts.requests == 7
    assert counts.sampled_tokens == sum(
        len(event.result.token_ids) for event in recording.events if isinstance(event, Sampled)
    )
