from dataclasses import dataclass

import pytest

from minivllm_scheduler import FCFS, LEAST_COMPUTED, LIFO, PRIORITY
from minivllm_scheduler.errors import InvalidRecording
from minivllm_scheduler.recording.policy_names import name_of, policies_of


@dataclass(frozen=True)
class Nth:
    n: int

    def __call__(self, candidates):
        return self.n


@pytest.mark.parametrize("policy", [FCFS, PRIORITY, LIFO, LEAST_COMPUTED])
def test_the_packages_own_policies_are_found_by_name(policy):
    assert policies_of({"order": name_of(policy)}, {}) == {"order": policy}


def test_a_policy_with_fields_is_named_with_them():
    assert name_of(Nth(3)) == "Nth(n=3)"


def test_a_policy_of_somebody_else_must_be_given():
    with pytest.raises(InvalidRecording, match=r"victim 'Nth\(n=3\)'"):
        policies_of({"victim": name_of(Nth(3))}, {})
    assert policies_of({"victim": name_of(Nth(3))}, {"victim": Nth(3)}) == {"victim": Nth(3)}


def test_a_given_policy_replaces_the_named_one():
    assert policies_of({"victim": name_of(LIFO)}, {"victim": LEAST_COMPUTED}) == {"victim": LEAST_COMPUTED}
