"""vLLM in a process of its own, run by the Python of another environment: its torch need not be ours."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

from minivllm_bench.engines.interface import Completion, EngineSettings, TimedRun
from minivllm_bench.engines.model_source import find_model
from minivllm_bench.errors import EngineFailed, InvalidSetting
from minivllm_bench.workloads import BenchRequest

WORKER = Path(__file__).with_name("vllm_worker.py")
STOP_WITHIN_S = 60.0


class VllmEngine:
    """A worker process that loads vLLM once and then serves timed runs over its stdin and stdout."""

    def __init__(self, python: Path, worker_settings: dict[str, Any]) -> None:
        """Start the worker and wait until its model is loaded.

        Args:
            python: Interpreter of the environment that has vLLM.
            worker_settings: First line of the protocol in `vllm_worker`.

        Raises:
            EngineFailed: the interpreter does not start, or vLLM does not load the model.
        """
        # Outlives a worker that fails: the last line is seldom the cause.
        self._log: IO[str] = tempfile.NamedTemporaryFile(  # noqa: SIM115
            "w+", prefix="minivllm-bench-vllm-", suffix=".log", errors="replace", delete=False
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

    @classmethod
    def load(cls, settings: EngineSettings) -> Self:
        """Start vLLM on the model; a GGUF file is first written as a Hugging Face folder, which vLLM reads.

        Raises:
            InvalidSetting: no interpreter is given, or the device is not the CPU.
            EngineFailed: vLLM does not load the model.
        """
        if settings.vllm_python is None:
            raise InvalidSetting(
                "engine vllm needs --vllm-python, the interpreter of an environment that has vLLM"
            )
        if settings.device != "cpu":
            raise InvalidSetting(f"engine vllm is measured on the cpu only, not on {settings.device}")
        with tempfile.TemporaryDirectory(prefix="minivllm-bench-") as folder:
            source = find_model(settings.model)
            if source.gguf_file is not None:
                from minivllm_bench.engines.hf import save_folder

                save_folder(source, settings.dtype, Path(folder))
            return cls(
                settings.vllm_python,
                {
                    "model": source.location if source.gguf_file is None else folder,
                    "dtype": settings.dtype,
                    "num_threads": settings.num_threads,
                },
            )

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
            f"vllm ended with status {self._process.returncode}: {reason} (log: {self._log.name})"
        )
