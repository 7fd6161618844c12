import pytest

from minivllm_scheduler import Request
from minivllm_scheduler.simulation import InvalidWorkload, TimedRequest, UpcomingRequests


def request(name):
    return Request(request_id=name, prompt_token_ids=[1], max_tokens=1)


class Script:
    """Arrivals at given times, and a follow-up after each request that is named."""

    def __init__(self, times_s, follow_ups=()):
        self.times_s = times_s
        self.follow_ups = dict(follow_ups)
        self.num_drawn = 0

    def arrivals(self):
        for number, time_s in enumerate(self.times_s):
            self.num_drawn += 1
            yield TimedRequest(time_s, request(str(number)))

    def follow_up(self, ended, now_s):
        gap_s = self.follow_ups.get(ended.request_id)
        return None if gap_s is None else TimedRequest(now_s + gap_s, request(f"after {ended.request_id}"))


def names(arrivals):
    return [arrival.request.request_id for arrival in arrivals]


def test_requests_come_in_order_of_time_and_no_sooner():
    upcoming = UpcomingRequests(Script([0.0, 1.0, 1.0, 5.0]))
    assert upcoming.next_time_s == 0.0
    assert names(upcoming.take_due(1.0)) == ["0", "1", "2"]
    assert names(upcoming.take_due(4.9)) == []
    assert upcoming.next_time_s == 5.0
    assert names(upcoming.take_due(5.0)) == ["3"]
    assert upcoming.next_time_s is None


def test_what_follows_an_answer_takes_its_place_between_the_others():
    upcoming = UpcomingRequests(Script([0.0, 2.0], {"0": 1.0}))
    (first,) = upcoming.take_due(0.0)
    upcoming.ended(first.request, 0.5)
    assert upcoming.next_time_s == 1.5
    assert names(upcoming.take_due(9.0)) == ["after 0", "1"]
    upcoming.ended(request("1"), 9.0)
    assert upcoming.next_time_s is None


def test_what_follows_at_once_is_taken_in_the_same_go():
    upcoming, taken = UpcomingRequests(Script([0.0], {"0": 0.0, "after 0": 0.0})), []
    for arrival in upcoming.take_due(0.0):
        taken.append(arrival.request.request_id)
        upcoming.ended(arrival.request, 0.0)
    assert taken == ["0", "after 0", "after after 0"]


def test_one_arrival_is_drawn_at_a_time():
    script = Script(range(1000))
    upcoming = UpcomingRequests(script)
    assert len(names(upcoming.take_due(9.0))) == 10
    assert script.num_drawn == 11


@pytest.mark.parametrize("times_s", [[-1.0], [float("nan")], [float("inf")], [2.0, 1.0]])
def test_times_that_are_none_or_go_back_are_refused(times_s):
    with pytest.raises(InvalidWorkload, match=f"arrives at {times_s[-1]} s"):
        names(UpcomingRequests(Script(times_s)).take_due(9.0))
