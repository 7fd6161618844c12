"""The far side of `PeerProcess`: a script for another environment's Python, which has one engine, nothing of ours.

One JSON object a line. The first line on stdin is the settings that `peer_process` writes; the answer is
`{"vocab_size": V}`. Every later line is a run, `{"prompts": [[id, …], …], "output_lens": [n, …]}`, answered by
`{"token_ids": [[id, …], …], "texts": […], "seconds": s}`; the clock runs here, so that the pipe is not counted. The
end of stdin ends the process.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

CPU_KV_CACHE_BYTES = 4 << 30
"""Without a figure vLLM wants most of the machine's memory, which the engines beside it share."""

Rows = tuple[list[list[int]], list[str]]
Generate = Callable[[list[list[int]], list[int]], Rows]
"""From prompts and output lengths to ids and texts."""


def main() -> None:
    """Serve runs until stdin ends."""
    answers = _claim_stdout()
    settings = json.loads(sys.stdin.readline())
    load = {"vllm": _load_vllm, "nano-vllm": _load_nano_vllm}[settings["peer"]]
    vocab_size, generate = load(settings)
    _send(answers, {"vocab_size": vocab_size})
    for line in sys.stdin:
        job = json.loads(line)
        started = time.perf_counter()
        token_ids, texts = generate(job["prompts"], job["output_lens"])
        seconds = time.perf_counter() - started
        _send(answers, {"token_ids": token_ids, "texts": texts, "seconds": seconds})


def _claim_stdout() -> TextIO:
    """Keep the pipe for answers; whatever the engine and its processes print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=answers, flush=True)


def _load_vllm(settings: dict[str, Any]) -> tuple[int, Generate]:
    if settings["device"] == "cpu":
        # Left alone, vLLM keeps one core free; its peers keep none.
        cores = sorted(os.sched_getaffinity(0))[: settings["num_threads"]]
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(str(core) for core in cores)
        memory: dict[str, float] = {"kv_cache_memory_bytes": CPU_KV_CACHE_BYTES}
    else:
        memory = {"gpu_memory_utilization": settings["gpu_memory_share"]}
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found, unused-ignore]

    llm = LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        load_format="auto" if settings["has_weights"] else "dummy",
        enable_prefix_caching=False,
        **memory,
    )

    def generate(prompts: list[list[int]], output_lens: list[int]) -> Rows:
        params = [
            SamplingParams(temperature=settings["temperature"], max_tokens=length, ignore_eos=True)
            for length in output_lens
        ]
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        choices = [output.outputs[0] for output in outputs]
        return [list(choice.token_ids) for choice in choices], [choice.text for choice in choices]

    return llm.llm_engine.model_config.get_vocab_size(), generate


def _load_nano_vllm(settings: dict[str, Any]) -> tuple[int, Generate]:
    """Its memory share counts what other processes hold; its prefix cache is always on, and finds nothing here."""
    import torch
    from nanovllm import LLM, SamplingParams  # type: ignore[import-not-found, unused-ignore]
    from transformers import AutoConfig

    free_bytes, total_bytes = torch.cuda.mem_get_info()
    used_share = 1 - free_bytes / total_bytes
    llm = LLM(settings["model"], gpu_memory_utilization=used_share + settings["gpu_memory_share"])

    def generate(prompts: list[list[int]], output_lens: list[int]) -> Rows:
        params = [
            SamplingParams(temperature=settings["temperature"], max_tokens=length, ignore_eos=True)
            for length in output_lens
        ]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return [list(output["token_ids"]) for output in outputs], [output["text"] for output in outputs]

    return int(AutoConfig.from_pretrained(settings["model"]).vocab_size), generate


if __name__ == "__main__":
    main()
