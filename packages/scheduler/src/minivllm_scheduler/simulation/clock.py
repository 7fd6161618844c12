"""Time that passes only when the simulation says so."""


class VirtualClock:
    """A clock that starts at 0 and is moved forward by hand.

    Attributes:
        now_s: Seconds since the start.
    """

    __slots__ = ("now_s",)

    def __init__(self) -> None:
        self.now_s = 0.0

    def advance_to(self, time_s: float) -> None:
        """Moves to `time_s`; a moment that has passed already leaves the clock where it is."""
        self.now_s = max(self.now_s, time_s)
