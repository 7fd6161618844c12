"""The program: `minivllm-bench`, or `python -m minivllm_bench`.

Ctrl-C is one line from the first moment on: nothing of ours is imported before it is. SIGTERM ends it as well as that
does: servers and engines that it started end too.
"""

import signal
import sys
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130
"""What shells give a program that Ctrl-C ended: 128 and the number of the signal."""
TERMINATED = 128 + signal.SIGTERM


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """As Ctrl-C does: an event loop cancels what it runs, where an exception could be lost in a callback from C."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # Ctrl-C is ignored
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def main() -> int:
    """Run the command line; returns its exit status."""
    was_terminated = False

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal was_terminated
        was_terminated = True
        _interrupt(number, frame)

    signal.signal(signal.SIGTERM, terminate)
    with suppress(KeyboardInterrupt):
        from minivllm_bench.cli import main as run

        status = run()
        if status != INTERRUPTED:
            return status
    # Once is enough: another one must not break what is closed while the interpreter ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if was_terminated:
        return TERMINATED
    sys.stderr.write("minivllm-bench: interrupted\n")
    return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
