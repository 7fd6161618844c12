from minivllm_runtime.engine.queue_clock import QueueClock
from minivllm_scheduler import SchedulerOutput
from minivllm_scheduler.output import Admitted


class Idle:
    """An executor that does nothing."""

    def launch(self, output):
        pass

    def result(self):
        return None


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def admit(*names):
    admitted = tuple(Admitted(name, (1,), 1, (0,), 0) for name in names)
    return SchedulerOutput(step_id=0, rows=(), admitted=admitted, released=())


def test_a_request_waits_until_it_is_first_scheduled():
    clock = Clock()
    queue_clock = QueueClock(Idle(), clock)
    queue_clock.add_request("a")
    clock.now = 1.0
    queue_clock.add_request("b")
    clock.now = 3.0
    queue_clock.launch(admit("a", "b"))
    assert queue_clock.take() == (3.0, 2.0)
    queue_clock.launch(admit("a"))  # preempted and back
    assert queue_clock.take() == ()


def test_what_ended_waiting_is_forgotten():
    queue_clock = QueueClock(Idle(), Clock())
    queue_clock.add_request("a")
    queue_clock.remove_request("a")
    queue_clock.remove_request("never added")
    queue_clock.launch(admit("a"))
    assert queue_clock.take() == ()
