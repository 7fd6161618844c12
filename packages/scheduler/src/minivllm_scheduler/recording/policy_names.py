"""Names of policies, as recordings store them."""

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, Final

from minivllm_scheduler.errors import InvalidRecording
from minivllm_scheduler.policy import COST_AWARE, FCFS, LEAST_COMPUTED, LIFO, PRIORITY, RESERVE_ALL

Policy = Callable[..., Any]
"""A strategy in any role: a function, or an object that is called like one."""


def name_of(policy: Policy) -> str:
    """Name of a function, the fields of a dataclass, or the class of anything else."""
    if is_dataclass(policy):
        return repr(policy)
    return str(getattr(policy, "__name__", type(policy).__name__))


_OWN: Final[Mapping[str, Policy]] = {
    name_of(policy): policy for policy in (FCFS, PRIORITY, RESERVE_ALL, LIFO, LEAST_COMPUTED, COST_AWARE)
}


def policies_of(names: Mapping[str, str], given: Mapping[str, Policy]) -> dict[str, Policy]:
    """The strategies that a recording names, by role; `given` ones replace them.

    Raises:
        InvalidRecording: A name is none of this package's, and its role is not given.
    """
    policies = dict(given)
    for role, name in names.items():
        if role in policies:
            continue
        if name not in _OWN:
            raise InvalidRecording(
                f"the recording was made with {role} {name!r}, which is none of {', '.join(_OWN)}: "
                f"call replay with {role}=…"
            )
        policies[role] = _OWN[name]
    return policies
