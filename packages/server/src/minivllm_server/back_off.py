"""How soon a process that failed is replaced, and when that is given up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackOff:
    """Delays that double with each quick failure in a row.

    Attributes:
        quick_s: A process that served for less than that failed quickly; any other begins a new row.
        first_delay_s: After one quick failure.
        most_failures: So many in a row, and it is given up.
    """

    quick_s: float = 10.0
    first_delay_s: float = 0.5
    most_failures: int = 5

    def is_quick(self, served_s: float) -> bool:
        """Whether a process that served so long failed quickly."""
        return served_s < self.quick_s

    def delay_s(self, num_failures: int) -> float | None:
        """Seconds until the next start, after so many quick failures in a row; None: there is none."""
        if num_failures == 0:
            return 0.0
        if num_failures >= self.most_failures:
            return None
        return self.first_delay_s * 2.0 ** (num_failures - 1)
