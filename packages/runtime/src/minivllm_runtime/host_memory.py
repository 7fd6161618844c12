"""How much memory the host gives this process: all it has, or what a container is limited to."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_V1 = ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
_V2 = ("sys/fs/cgroup", "memory.max")
"""Where control groups are found, and the file with the limit of one (cgroups(7))."""


def host_memory_bytes(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may take, if nobody else takes any: the machine's or its limit, the smaller.

    Args:
        root: Of the file system that tells of limits.
    """
    physical_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical_bytes, *_limits_bytes(root)])


def _limits_bytes(root: Path) -> Iterator[int]:
    """The limits of the control groups that this process is in, versions 1 and 2, and of those around them."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, name = _V2
        elif "memory" in controllers.split(","):
            mount, name = _V1
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            limit = _read(root / mount / each / name).strip()
            if limit.isdigit():  # "max" is none
                yield int(limit)


def _read(path: Path) -> str:
    """What a file says; nothing if there is no such file, as on other systems or in some containers."""
    try:
        return path.read_text()
    except OSError:
        return ""
