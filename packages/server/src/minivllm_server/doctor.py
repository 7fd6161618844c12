"""`minivllm doctor`: what this machine has, and whether the model can be served on it."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.errors import MinivllmError

OUR_PACKAGES = (
    "minivllm-server",
    "minivllm-runtime",
    "minivllm-kernels",
    "minivllm-scheduler",
    "minivllm-kvcache",
)
LIBRARIES = ("torch", "triton", "transformers", "tokenizers", "xgrammar", "fastapi", "uvicorn")


class Finding(NamedTuple):
    """Something that was looked at.

    Attributes:
        subject: What it is.
        text: How it is.
        is_good: False if the server cannot work like this.
    """

    subject: str
    text: str
    is_good: bool = True


def examine(config: EngineConfig) -> Iterator[Finding]:
    """Looks at versions, devices and the model, one after another. Weights are not read, and nothing is downloaded."""
    yield Finding("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}")
    for package in OUR_PACKAGES:
        yield Finding(package, version(package))
    for library in LIBRARIES:
        yield Finding(library, _version_of(library))
    yield from _examine_devices(config)
    yield _examine_model(config)


def _examine_devices(config: EngineConfig) -> Iterator[Finding]:
    # Imported here, as below: the tensor library takes seconds, and what does without it is shown at once.
    from minivllm_runtime.machine import obstacle_to_cpu_kernels, read_devices

    devices = read_devices()
    for device in devices:
        memory = f"{_gib(device.free_bytes)} of {_gib(device.total_bytes)} free"
        yield Finding(device.kind, f"{device.name}, {memory}")
    has_gpu = any(device.kind != "cpu" for device in devices)
    if config.device == "cuda" and not has_gpu:
        yield Finding("device", "cuda was asked for, and there is no CUDA device", is_good=False)
    if not has_gpu:
        obstacle = obstacle_to_cpu_kernels()
        yield Finding("cpu kernels", "compiled" if obstacle is None else f"PyTorch's, slower: {obstacle}")


def _examine_model(config: EngineConfig) -> Finding:
    from minivllm_runtime.engine.builder import plan_engine
    from minivllm_runtime.loader.checkpoint import open_local_checkpoint
    from minivllm_runtime.loader.dummy_checkpoint import DummyCheckpoint

    try:
        is_dummy = config.load_format == "dummy"
        checkpoint = (
            DummyCheckpoint(Path(config.model).expanduser())
            if is_dummy
            else open_local_checkpoint(config.model)
        )
        if checkpoint is None:
            return Finding(
                "model", f"{config.model}: not on this machine; a hub is asked for it when it is loaded"
            )
        model = checkpoint.config
        plan_engine(config, model)
    except MinivllmError as error:
        return Finding("model", str(error), is_good=False)
    return Finding(
        "model",
        f"{config.model}: {model.architecture}, {model.num_layers} layers, hidden size {model.hidden_size}, "
        f"vocabulary {model.vocab_size}, context {model.max_position_embeddings}",
    )


def _version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
