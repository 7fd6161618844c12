"""KVUseRecord: blocks in use over time, in constant memory."""

from typing import Final

from minivllm_scheduler.simulation.report import KVUse

MAX_MOMENTS: Final = 1024


class KVUseRecord:
    """Takes in the pool's use whenever it may have changed.

    Mean and peak are exact. Of the moments, every one is kept until there are `MAX_MOMENTS`, then every second
    of them is dropped and every second one is kept from there on, and so on.

    Attributes:
        peak_blocks: Most blocks in use at any moment.
        moments: At most `MAX_MOMENTS`, evenly spaced in steps.
    """

    __slots__ = ("_block_seconds", "_in_use", "_last_s", "_num_taken", "_stride", "moments", "peak_blocks")

    def __init__(self) -> None:
        self.peak_blocks = 0
        self.moments: list[KVUse] = []
        self._stride = 1
        self._num_taken = 0
        self._in_use = 0
        self._last_s = 0.0
        self._block_seconds = 0.0

    def take(self, time_s: float, in_use_blocks: int) -> None:
        """From `time_s` on so many blocks are in use."""
        self._block_seconds += self._in_use * (time_s - self._last_s)
        self._in_use = in_use_blocks
        self._last_s = time_s
        self.peak_blocks = max(self.peak_blocks, in_use_blocks)
        if self._num_taken % self._stride == 0:
            self.moments.append(KVUse(time_s, in_use_blocks))
            if len(self.moments) == MAX_MOMENTS:
                del self.moments[1::2]
                self._stride *= 2
        self._num_taken += 1

    @property
    def mean_blocks(self) -> float:
        """Blocks in use, averaged over the time up to the last call of `take`; 0 if no time has passed."""
        if not self._last_s:
            return 0.0
        # A sum of rounded products may end an ulp above what was in use all the time.
        return min(self._block_seconds / self._last_s, self.peak_blocks)
