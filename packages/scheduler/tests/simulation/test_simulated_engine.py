from functools import partial

import pytest

from minivllm_scheduler import LEAST_COMPUTED, PRIORITY, RESERVE_ALL, SchedulerConfig
from minivllm_scheduler.recording import RecordingScheduler
from minivllm_scheduler.simulation import InvalidCost, SimulatedEngine

CONFIG = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=512, max_num_waiting=9)


def test_its_parts_are_built_as_it_says():
    engine = SimulatedEngine(
        config=CONFIG,
        num_blocks=9,
        block_size=4,
        prefix_caching=False,
        order=PRIORITY,
        victim=LEAST_COMPUTED,
        admission=RESERVE_ALL,
    )
    kv = engine.make_kv()
    assert (kv.num_blocks, kv.block_size, kv.prefix_caching) == (9, 4, False)
    events = []
    engine.make_scheduler(kv, partial(RecordingScheduler, run_ahead=False, record=events.append))
    assert events[0].config is CONFIG
    assert events[0].policies == {
        "order": "PriorityWithAgeing(ageing_s=30.0)",
        "victim": "least_computed",
        "admission": "all_that_may_grow",
    }


def test_host_time_is_not_negative():
    with pytest.raises(InvalidCost, match="host_s is -1"):
        SimulatedEngine(config=CONFIG, num_blocks=9, host_s=-1)
