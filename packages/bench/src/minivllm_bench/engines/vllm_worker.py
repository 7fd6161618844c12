"""The far side of `VllmEngine`: a script for another environment's Python, which has vLLM, nothing of ours.

One JSON object a line. The first line on stdin is the settings; the answer is `{"vocab_size": V}`. Every
later line is a run, `{"prompts": [[id, …], …], "output_lens": [n, …]}`, answered by `{"token_ids":
[[id, …], …], "texts": […], "seconds": s}`; the clock runs here, so that the pipe is not counted. The end of
stdin ends the process.
"""

import json
import os
import sys
import time
from typing import Any, TextIO

KV_CACHE_BYTES = 4 << 30
"""Without a figure vLLM wants most of the machine's memory, which the engines beside it share."""


def main() -> None:
    """Serve runs until stdin ends."""
    answers = _claim_stdout()
    settings = json.loads(sys.stdin.readline())
    # Left alone, vLLM keeps one core free; its peers keep none.
    cores = sorted(os.sched_getaffinity(0))[: settings["num_threads"]]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(str(core) for core in cores)
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found, unused-ignore]

    llm = LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        enable_prefix_caching=False,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
    )
    _send(answers, {"vocab_size": llm.llm_engine.model_config.get_vocab_size()})
    for line in sys.stdin:
        _send(answers, _run(llm, SamplingParams, json.loads(line)))


def _claim_stdout() -> TextIO:
    """Keep the pipe for answers; whatever vLLM and its processes print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=answers, flush=True)


def _run(llm: Any, sampling_params: Any, job: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in job["prompts"]],
        [
            sampling_params(temperature=0.0, max_tokens=length, ignore_eos=True)
            for length in job["output_lens"]
        ],
        use_tqdm=False,
    )
    seconds = time.perf_counter() - started
    choices = [output.outputs[0] for output in outputs]
    return {
        "token_ids": [list(choice.token_ids) for choice in choices],
        "texts": [choice.text for choice in choices],
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
