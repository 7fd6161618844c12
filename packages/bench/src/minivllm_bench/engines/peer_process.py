"""Engines in a process of their own, run by the Python of another environment: its torch need not be ours."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from minivllm_bench.engines.interface import Completion, EngineSettings, TimedRun
from minivllm_bench.engines.model_source import find_model
from minivllm_bench.errors import EngineFailed, InvalidSetting
from minivllm_bench.workloads import BenchRequest

WORKER = Path(__file__).with_name("peer_worker.py")
STOP_WITHIN_S = 60.0


class PeerProcess:
    """A worker process that loads one engine once and then serves timed runs over its stdin and stdout."""

    def __init__(self, python: Path, worker_settings: dict[str, Any]) -> None:
        """Start the worker and wait until its model is loaded.

        Args:
            python: Interpreter of the environment that has the engine.
            worker_settings: First line of the protocol in `peer_worker`.

        Raises:
            EngineFailed: the interpreter does not start, or the engine does not load the model.
        """
        self._name: str = worker_settings["peer"]
        # Outlives a worker that fails: the last line is seldom the cause.
        self._log: IO[str] = tempfile.NamedTemporaryFile(  # noqa: SIM115
            "w+", prefix=f"minivllm-bench-{self._name}-", suffix=".log", errors="replace", delete=False
        )
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's own choice
                [str(python), "-u", str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
            )
        except OSError as error:
            self._drop_log()
            raise EngineFailed(f"cannot run {python}: {error.strerror}") from error
        self._vocab_size = int(self._ask(worker_settings)["vocab_size"])

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self._vocab_size

    def run(self, requests: Sequence[BenchRequest]) -> TimedRun:
        """See `Engine.run`; the worker's own clock counts."""
        answer = self._ask(
            {
                "prompts": [request.prompt_token_ids for request in requests],
                "output_lens": [request.output_len for request in requests],
            }
        )
        rows = zip(answer["token_ids"], answer["texts"], strict=True)
        return TimedRun(tuple(Completion(tuple(ids), text) for ids, text in rows), float(answer["seconds"]))

    def close(self) -> None:
        """End the worker's input, so that it leaves by itself; stop it if it hangs. Twice is harmless."""
        if self._log.closed:
            return
        self._stop()
        self._drop_log()

    def _stop(self) -> None:
        try:
            self._process.communicate(timeout=STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _drop_log(self) -> None:
        self._log.close()
        Path(self._log.name).unlink()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self) -> EngineFailed:
        """Why the worker ended: its exit status, the last line it wrote to stderr, and where the others are."""
        self._stop()
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        self._log.close()
        reason = lines[-1] if lines else "no message"
        return EngineFailed(
            f"{self._name} ended with status {self._process.returncode}: {reason} (log: {self._log.name})"
        )


def open_vllm(settings: EngineSettings) -> PeerProcess:
    """Start vLLM on the model; a GGUF file is first written as a Hugging Face folder, which vLLM reads.

    Raises:
        InvalidSetting: vLLM is not installed here, and no interpreter is given that has it.
        EngineFailed: vLLM does not load the model.
    """
    python = settings.vllm_python or _this_python("vllm", "vllm")
    is_file = not settings.dummy_weights and find_model(settings.model).gguf_file is not None
    return _open("vllm", python, settings, needs_folder=is_file)


def open_nano_vllm(settings: EngineSettings) -> PeerProcess:
    """Start nano-vllm on the model, written as a folder with weights if it is none: that is all it reads.

    Raises:
        InvalidSetting: nano-vllm is not installed here, and no interpreter is given that has it; or it is asked to
            run on a CPU, or greedily.
        EngineFailed: nano-vllm does not load the model.
    """
    python = settings.nano_vllm_python or _this_python("nano-vllm", "nanovllm")
    if settings.device != "cuda":
        raise InvalidSetting(f"engine nano-vllm runs on cuda only, not on {settings.device}")
    if settings.temperature == 0:
        raise InvalidSetting("engine nano-vllm has no greedy sampling: give --temperature, 0.6 for example")
    is_folder = not settings.dummy_weights and find_model(settings.model).gguf_file is None
    return _open("nano-vllm", python, settings, needs_folder=not is_folder)


def _this_python(name: str, module: str) -> Path:
    """This process's own interpreter, if it has the engine.

    Raises:
        InvalidSetting: it has not.
    """
    if importlib.util.find_spec(module) is None:
        raise InvalidSetting(
            f"engine {name} is not installed here: install it, or give --{name}-python, "
            "the interpreter of an environment that has it"
        )
    return Path(sys.executable)


def _open(name: str, python: Path, settings: EngineSettings, *, needs_folder: bool) -> PeerProcess:
    """Start the worker; with `needs_folder` on a copy of the model as a folder with weights."""
    with ExitStack() as stack:
        model = settings.model if settings.dummy_weights else find_model(settings.model).location
        if needs_folder:
            from minivllm_bench.engines.hf import save_folder

            model = stack.enter_context(tempfile.TemporaryDirectory(prefix="minivllm-bench-"))
            save_folder(settings, Path(model))
        return PeerProcess(
            python,
            {
                "peer": name,
                "model": model,
                "has_weights": needs_folder or not settings.dummy_weights,
                "dtype": settings.dtype,
                "device": settings.device,
                "num_threads": settings.num_threads,
                "temperature": settings.temperature,
                "gpu_memory_share": settings.gpu_memory_share,
            },
        )
