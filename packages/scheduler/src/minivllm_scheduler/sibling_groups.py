"""SiblingGroups: the n choices of a prompt compute it once.

The first request of a group leads. Its siblings are held back until the leader's prompt is in the prefix
cache, and then find it there. If the leader ends before that, the sibling held longest leads.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from minivllm_scheduler.request import RequestState, RequestStatus


@dataclass(slots=True)
class _Group:
    leader: RequestState | None  # None once the prompt is committed
    members: int = 0
    held: dict[str, RequestState] = field(default_factory=dict)


class SiblingGroups:
    """Groups that have a live member; a group whose last member ended is forgotten."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        # Of all groups, by arrival. A plain dict finds its first entry only after walking over those removed before it.
        self._held: OrderedDict[str, RequestState] = OrderedDict()

    @property
    def num_held(self) -> int:
        """Requests held back."""
        return len(self._held)

    @property
    def oldest(self) -> RequestState | None:
        """The request that was held back first; None if none is."""
        return next(iter(self._held.values()), None)

    def __iter__(self) -> Iterator[RequestState]:
        """The requests held back."""
        return iter(self._held.values())

    def enter(self, state: RequestState) -> bool:
        """Registers a new request. True: it may wait for admission; False: it is held back."""
        name = state.request.group
        if name is None:
            return True
        group = self._groups.setdefault(name, _Group(leader=state))
        group.members += 1
        if group.leader is None or group.leader is state:
            return True
        state.status = RequestStatus.HELD
        group.held[state.request_id] = state
        self._held[state.request_id] = state
        return False

    def prompt_committed(self, state: RequestState) -> tuple[RequestState, ...]:
        """The prompt of `state` is in the prefix cache. Returns the siblings that need not be held longer."""
        name = state.request.group
        if name is None or self._groups[name].leader is not state:
            return ()
        group = self._groups[name]
        group.leader = None
        freed = tuple(group.held.values())
        group.held.clear()
        self._let_go(freed)
        return freed

    def leave(self, state: RequestState) -> tuple[RequestState, ...]:
        """A request ended. Returns the sibling that leads instead, no longer held, if there is one."""
        name = state.request.group
        if name is None:
            return ()
        group = self._groups[name]
        group.members -= 1
        if group.members == 0:
            del self._groups[name]
        if group.held.pop(state.request_id, None) is not None:
            del self._held[state.request_id]
        if group.leader is not state or not group.held:
            return ()
        successor = group.held.pop(next(iter(group.held)))
        group.leader = successor
        self._let_go((successor,))
        return (successor,)

    def check_invariants(self) -> None:
        """Asserts that a group with held siblings has a live leader that is not itself held."""
        assert self.num_held == sum(len(group.held) for group in self._groups.values())
        assert [state.arrival for state in self] == sorted(state.arrival for state in self)
        for group in self._groups.values():
            assert group.members > len(group.held)
            if group.held:
                assert group.leader is not None
                assert group.leader.status not in (RequestStatus.HELD, RequestStatus.FINISHED)

    def _let_go(self, states: tuple[RequestState, ...]) -> None:
        for state in states:
            state.status = RequestStatus.WAITING
            del self._held[state.request_id]
