"""Compiles the C sources when a machine first needs them, and loads the result."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from minivllm_kernels.errors import CpuKernelsUnavailable

PANEL_COLUMNS = 32
"""Outputs in a panel of a packed weight: two vectors of 16 floats."""
MAX_HEAD_DIM = 256
MAX_GROUP_SIZE = 48
"""Query heads of one KV head; attention computes so many rows at a time."""

_SOURCE_FOLDER = Path(__file__).parent
_SOURCES = ("linear.c", "activations.c", "attention.c")
_HEADERS = ("bf16.h",)
# The instructions are named, not `native`: the compiled file may lie in a home folder that several machines share.
_FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra", "-mprefer-vector-width=512"),
    *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16", "-mfma"),
    *(f"-DPANEL={PANEL_COLUMNS}", f"-DMAX_HEAD_DIM={MAX_HEAD_DIM}", f"-DMAX_ROWS={MAX_GROUP_SIZE}"),
)


def load_library() -> ctypes.CDLL:
    """Load the compiled kernels; the first call on a machine compiles them, in about two seconds.

    Raises:
        CpuKernelsUnavailable: the processor has no AVX512-BF16, or gcc is missing or fails.
    """
    if not torch.cpu._is_avx512_bf16_supported():
        raise CpuKernelsUnavailable("this processor has no AVX512-BF16")
    folder = _cache_folder()
    if folder is not None:
        return _load(folder)
    with tempfile.TemporaryDirectory(prefix="minivllm-") as own:
        return _load(Path(own))  # what is loaded stays when its file goes


def _load(folder: Path) -> ctypes.CDLL:
    path = folder / f"cpu-kernels-{_digest()}.so"
    if not path.exists():
        _compile(path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CpuKernelsUnavailable(f"{path} does not load: {error}") from error


def _digest() -> str:
    content = hashlib.sha256(" ".join(_FLAGS).encode())
    for name in (*_HEADERS, *_SOURCES):
        content.update((_SOURCE_FOLDER / name).read_bytes())
    return content.hexdigest()[:16]


def _cache_folder() -> Path | None:
    """Where compiled kernels stay; None if there is no writable home."""
    try:
        folder = Path.home() / ".cache" / "minivllm"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    return None


def _compile(path: Path) -> None:
    """Compile to a file of our own and move it into place: another process may do the same at this moment."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise CpuKernelsUnavailable("there is no gcc to compile the kernels with")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as folder:
        objects = [Path(folder, name).with_suffix(".o") for name in _SOURCES]
        for source, compiled in zip(_SOURCES, objects, strict=True):
            _run([compiler, *_FLAGS, "-fopenmp", "-c", str(_SOURCE_FOLDER / source), "-o", str(compiled)])
        linked = Path(folder, path.name)
        # Linked without OpenMP: its functions come from the copy that PyTorch has loaded, and with them its threads.
        _run([compiler, "-shared", *map(str, objects), "-o", str(linked)])
        linked.replace(path)


def _run(command: Sequence[str]) -> None:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if finished.returncode != 0:
        raise CpuKernelsUnavailable(f"gcc fails: {finished.stderr.strip()[:500]}")
