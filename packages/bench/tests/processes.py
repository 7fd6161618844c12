"""What /proc says of processes that tests start."""

from contextlib import suppress
from pathlib import Path


def children(pid="self"):
    """Ids of a process's children."""
    found = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found |= set(map(int, file.read_text().split()))
    return found


def is_running(pid):
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
