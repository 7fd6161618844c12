from minivllm_scheduler.simulation.clock import VirtualClock


def test_time_starts_at_0_and_never_goes_back():
    clock = VirtualClock()
    assert clock.now_s == 0.0
    clock.advance_to(2.5)
    clock.advance_to(1.0)
    assert clock.now_s == 2.5
