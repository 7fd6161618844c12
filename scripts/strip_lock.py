"""Rewrite `uv.lock` as bare version pins, without a single download address.

uv accepts such a file as the set of preferred versions and completes it on the next `uv sync`, from whatever index
the machine at hand uses. So the committed file works behind any mirror and names none.

Usage: python scripts/strip_lock.py [uv.lock]
"""

import re
import sys
from pathlib import Path

ROOT_PROJECT = "minivllm-workspace"


def strip_lock(text: str) -> str:
    """Return `text` (the contents of a `uv.lock`) without hashes, addresses and the root project's metadata."""
    text = re.sub(r"^sdist = .*\n", "", text, flags=re.M)
    text = re.sub(r"^wheels = \[\n(?:    .*\n)*\]\n", "", text, flags=re.M)
    text = re.sub(r'registry = "[^"]*"', 'registry = "pypi"', text)
    head, *packages = text.split("[[package]]\n")
    return head + "".join("[[package]]\n" + _without_root_metadata(package) for package in packages)


def _without_root_metadata(package: str) -> str:
    if not package.startswith(f'name = "{ROOT_PROJECT}"\n'):
        return package
    return package.partition("[package.metadata]\n")[0]


def main() -> None:
    """Strip the lock file named on the command line in place."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "uv.lock")
    stripped = strip_lock(path.read_text())
    if "://" in stripped:
        address = next(line for line in stripped.splitlines() if "://" in line)
        sys.exit(f"{path}: an address is left after stripping: {address.strip()}")
    path.write_text(stripped)


if __name__ == "__main__":
    main()
