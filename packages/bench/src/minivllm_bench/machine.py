"""Facts about the machine and the software that a figure was made with."""

import importlib.metadata
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

NOTABLE_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
    "bf16",
    "i8mm",
)
"""Instruction sets that decide how fast matrix products can be, as Linux names them (x86 and Arm)."""
VERSIONED_PACKAGES = (
    "minivllm-kvcache",
    "minivllm-scheduler",
    "minivllm-kernels",
    "minivllm-runtime",
    "minivllm-bench",
    "torch",
    "triton",
    "transformers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What a reader needs to judge a figure.

    Attributes:
        cpu_model: As the operating system names it.
        num_cpus: Logical CPUs that this process may use.
        isa_flags: Those of `NOTABLE_FLAGS` that the CPU has.
        memory_bytes: Physical memory.
        gpus: Names of the CUDA devices.
        operating_system: Kernel and version.
        python: Version of the interpreter.
        versions: Of the installed packages that matter.
        git_commit: Commit of the checkout that this package runs from; None outside a checkout.
        git_dirty: Whether that checkout has changes; `uv.lock` aside, which uv completes at every run.
    """

    cpu_model: str
    num_cpus: int
    isa_flags: tuple[str, ...]
    memory_bytes: int
    gpus: tuple[str, ...]
    operating_system: str
    python: str
    versions: dict[str, str]
    git_commit: str | None
    git_dirty: bool

    @property
    def summary(self) -> str:
        """Processor, GPUs and commit in one line."""
        commit = f"commit {self.git_commit[:12]}" if self.git_commit else "no commit"
        return ", ".join([self.cpu_model, f"{self.num_cpus} CPUs", *self.gpus, commit])


def read_machine() -> MachineFacts:
    """Facts about this machine, now."""
    cpu_model, flags = read_cpu()
    commit, dirty = read_git(Path(__file__))
    return MachineFacts(
        cpu_model=cpu_model,
        num_cpus=len(os.sched_getaffinity(0)),
        isa_flags=tuple(flag for flag in NOTABLE_FLAGS if flag in flags),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=_gpu_names(),
        operating_system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        versions=_versions(),
        git_commit=commit,
        git_dirty=dirty,
    )


def read_cpu() -> tuple[str, frozenset[str]]:
    """Model and instruction-set flags of the CPU; without /proc, the platform's name and no flags."""
    cpuinfo = Path("/proc/cpuinfo")
    model, flags = parse_cpuinfo(cpuinfo.read_text()) if cpuinfo.exists() else (None, frozenset[str]())
    return model or platform.processor() or platform.machine(), flags


def parse_cpuinfo(text: str) -> tuple[str | None, frozenset[str]]:
    """Model name (None if not given, as on Arm) and flags of the first CPU in a /proc/cpuinfo."""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    return model and model[1].strip(), frozenset(flags[1].split() if flags else ())


def read_git(file: Path) -> tuple[str | None, bool]:
    """Commit of the checkout that tracks `file` and whether it has changes; (None, False) if none does."""
    folder = file.resolve().parent
    if _git(folder, "ls-files", "--error-unmatch", file.name) is None:
        return None, False
    changes = _git(folder, "status", "--porcelain", "--", ":(top)", ":(top,exclude)uv.lock")
    return _git(folder, "rev-parse", "HEAD"), bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, stripped; None if it fails or is not installed."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _gpu_names() -> tuple[str, ...]:
    try:
        import torch
    except ModuleNotFoundError:
        return ()
    return tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for package in VERSIONED_PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
