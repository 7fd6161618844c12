from minivllm_server.back_off import BackOff


def test_a_failure_after_long_service_is_mended_at_once():
    assert BackOff().delay_s(0) == 0


def test_quick_failures_wait_longer_and_longer_and_are_given_up():
    back_off = BackOff(first_delay_s=0.5, most_failures=4)
    assert [back_off.delay_s(num_failures) for num_failures in (1, 2, 3, 4)] == [0.5, 1, 2, None]


def test_quick_is_less_than_the_limit():
    back_off = BackOff(quick_s=10)
    assert back_off.is_quick(9.9)
    assert not back_off.is_quick(10)
