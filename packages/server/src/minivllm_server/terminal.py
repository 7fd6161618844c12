"""Writing to a terminal, a pipe or a file, any of which may end or be full."""

import io
import os
import sys


class OutputFailed(Exception):
    """Standard output takes nothing more; the message is one line that says why."""


def tolerate_any_encoding() -> None:
    """Lets characters pass that the terminal's encoding does not know, as question marks: a model may write any."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def write(text: str) -> None:
    """Writes `text` at once.

    Raises:
        OutputFailed: The disk is full, or who read the output has left.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        discard_output()
        raise OutputFailed(f"cannot write the output: {error.strerror}") from error


def announce(line: str) -> None:
    """Writes a line that nobody needs: a server goes on without it."""
    try:
        write(line + "\n")
    except OutputFailed:
        return


def discard_output() -> None:
    """What is still in the buffer would fail again, and loudly, when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
