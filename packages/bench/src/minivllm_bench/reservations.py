"""Why figures do not count, as far as every command asks it alike; a command adds its own reasons."""

from collections.abc import Sequence

from minivllm_bench.machine import MachineFacts

REPEATS_THAT_COUNT = 3


def checkout_reservations(machine: MachineFacts) -> tuple[str, ...]:
    """Why a reader cannot know which code the figures are of; empty if they can."""
    if machine.git_commit is None:
        return ("not run from a checkout",)
    return ("the checkout has uncommitted changes",) if machine.git_dirty else ()


def repeat_reservations(repeats: int) -> tuple[str, ...]:
    """Why a median over so many repeats does not count; empty if it does."""
    return () if repeats >= REPEATS_THAT_COUNT else (f"{repeats} of at least {REPEATS_THAT_COUNT} repeats",)


def caption(where: str, reservations: Sequence[str]) -> str:
    """The caption of a table: `where` the figures come from, then a line for each reason that they do not count."""
    return "\n".join([where, *(f"These figures do not count: {reason}." for reason in reservations)])
