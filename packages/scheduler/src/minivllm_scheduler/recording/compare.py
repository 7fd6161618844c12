"""Where two recordings first differ in what was decided."""

from itertools import zip_longest
from typing import NamedTuple

from minivllm_scheduler.output import SchedulerOutput
from minivllm_scheduler.recording.events import Recording


class Difference(NamedTuple):
    """The first difference of two recordings.

    Attributes:
        step_id: The step that differs.
        what: Part of the step: "pass", "rows[2]", "admitted[0]", "released[1]", or "step" if one recording has no more.
        left, right: The two values; None where there is none.
    """

    step_id: int
    what: str
    left: object
    right: object

    def __str__(self) -> str:
        return f"step {self.step_id} differs in {self.what}: {self.left} against {self.right}"


def first_difference(left: Recording, right: Recording) -> Difference | None:
    """Compares two recordings step by step: passes, rows, block ids, admissions and releases.

    Returns:
        Where they first differ; None if all decisions are equal.
    """
    for step_id, (ours, theirs) in enumerate(zip_longest(left.outputs(), right.outputs())):
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            return Difference(step_id, "step", ours and ours[1], theirs and theirs[1])
        if ours[0] != theirs[0]:
            return Difference(step_id, "pass", ours[0], theirs[0])
        return _first_difference_of_steps(step_id, ours[1], theirs[1])
    return None


def _first_difference_of_steps(step_id: int, left: SchedulerOutput, right: SchedulerOutput) -> Difference:
    for name in ("released", "admitted", "rows"):
        for index, (ours, theirs) in enumerate(zip_longest(getattr(left, name), getattr(right, name))):
            if ours != theirs:
                return Difference(step_id, f"{name}[{index}]", ours, theirs)
    return Difference(step_id, "step_id", left.step_id, right.step_id)
