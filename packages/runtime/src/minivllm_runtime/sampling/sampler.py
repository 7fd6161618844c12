"""Sampling of token ids from logits.

Order: penalties → bias → bans → grammar → temperature → top-k → top-p on what is left → min-p → draw. Tokens tied at a
threshold are all kept. The drawn token is the first id, in ascending order, at which the cumulative kept probability
exceeds u times its total.

A CUDA device draws by a kernel of its own, `minivllm_kernels.sample`, which does all from the temperature on.
"""

import torch
from torch import Tensor

from minivllm_runtime.sampling.grammar_masks import forbid_others
from minivllm_runtime.sampling.sampling_batch import RandomDraws, SamplingBatch

_FIRST_TOP_P_CANDIDATES = 256


def sample(logits: Tensor, batch: SamplingBatch) -> Tensor:
    """Sample one id per row on a CPU: logits [S, V] of any float dtype -> [S] int64. May overwrite `logits`."""
    logits = adjust(logits, batch)
    # Also the first of several largest ones, and four times faster than argmax on bfloat16.
    most_probable = logits.max(dim=-1).indices
    if batch.random is None:
        return most_probable
    drawn = _draw(
        _keep(logits.float() / batch.random.temperature[:, None], batch.random), batch.random.uniform
    )
    return torch.where(batch.random.greedy, most_probable, drawn)


def adjust(logits: Tensor, batch: SamplingBatch) -> Tensor:
    """Apply what changes the most probable token, for greedy rows too; on a CUDA device nothing here waits for it.

    Args:
        logits: [S, V] of any float dtype; may be overwritten.
        batch: What the rows ask for.

    Returns:
        [S, V], float32 if something was added to the logits.
    """
    if batch.penalties is not None or batch.bias is not None:
        logits = logits.float()  # in half precision small penalties would be lost
    if batch.penalties is not None:
        batch.penalties.apply(logits)
    if batch.bias is not None:
        rows, ids, values = batch.bias
        logits[rows, ids] += values
    if batch.banned is not None:
        # A value made on the device: one of the host's would be copied there, and waited for.
        logits.index_put_(batch.banned, logits.new_full((), float("-inf")))
    if batch.allowed is not None:
        forbid_others(logits, *batch.allowed)
    return logits


def _keep(logits: Tensor, random: RandomDraws) -> Tensor:
    """Set the logits of dropped tokens to -inf."""
    if random.top_k is not None:
        threshold = _top_k_threshold(logits, random.top_k, random.largest_top_k)
        logits = _drop_below(logits, logits, threshold)
    if random.top_p is not None:
        probabilities = torch.softmax(logits, dim=-1)
        logits = _drop_below(logits, probabilities, _top_p_threshold(probabilities, random.top_p))
    if random.min_p is not None:
        # p >= min_p · p_max, written with logits; log(0) = -inf keeps everything.
        threshold = logits.amax(dim=-1, keepdim=True) + random.min_p.log()[:, None]
        logits = _drop_below(logits, logits, threshold)
    return logits


def _drop_below(logits: Tensor, scores: Tensor, threshold: Tensor) -> Tensor:
    return logits.masked_fill(scores < threshold, float("-inf"))


def _top_k_threshold(logits: Tensor, top_k: Tensor, largest_top_k: int) -> Tensor:
    """[S, 1]: the k-th largest logit of each row; -inf for a row whose k is the vocabulary's size."""
    limited = top_k < logits.shape[-1]
    k = torch.where(limited, top_k, 1)
    # Greedy rows may have a larger k, which does not matter to them.
    largest = logits.topk(largest_top_k, dim=-1).values
    kth = largest.gather(1, k.clamp(max=largest_top_k)[:, None] - 1)
    return kth.masked_fill(~limited[:, None], float("-inf"))


def _top_p_threshold(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """[S, 1]: the smallest probability in the smallest set of most probable tokens whose mass reaches top_p.

    A full sort is rarely needed: the candidates are widened until they hold enough mass in every row.
    """
    vocab_size = probabilities.shape[-1]
    candidates = min(_FIRST_TOP_P_CANDIDATES, vocab_size)
    while True:
        largest = probabilities.topk(candidates, dim=-1).values
        mass = largest.cumsum(dim=-1, dtype=torch.float64)
        if candidates == vocab_size or bool(((mass[:, -1] >= top_p) | (top_p >= 1)).all()):
            break
        candidates = min(candidates * 16, vocab_size)
    kept = (mass - largest < top_p[:, None]).sum(dim=-1, keepdim=True).clamp(min=1)
    return largest.gather(1, kept - 1).masked_fill((top_p >= 1)[:, None], 0.0)


def _draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """Invert the cumulative distribution of each row at uniform [S]: [S] int64."""
    cumulative = torch.softmax(logits, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    target = uniform[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    return drawn.clamp_(max=logits.shape[-1] - 1)
