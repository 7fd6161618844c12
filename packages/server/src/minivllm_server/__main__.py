"""The program: `minivllm`, or `python -m minivllm_server`.

Ctrl-C is one line from the first moment on: nothing of ours is imported before it is. SIGTERM ends the program before
it serves, too, and where it is the first process of a container, for which there is no default.
"""

import signal
import sys
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130
"""What shells give a program that Ctrl-C ended: 128 and the number of the signal."""
TERMINATED = 128 + signal.SIGTERM


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(TERMINATED)


def main() -> int:
    """Runs the command line; returns its exit status."""
    signal.signal(signal.SIGTERM, _exit)
    with suppress(KeyboardInterrupt):
        from minivllm_server.cli import main as run

        status = run()
        if status != INTERRUPTED:
            return status
    # Once is enough: a second one must not break what is closed while the interpreter ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr.write("minivllm: error: interrupted\n")
    return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
