"""Log-probabilities: log-softmax of the raw logits, whatever temperature, penalties and limits the sampler applies.

On the device they are one table, so that one copy brings them to the host. A row of it is
`[log-probability, rank, K ids, their K log-probabilities]` in float64, which holds ids and float32 values exactly.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from minivllm_runtime.messages import TokenLogprobs


def logprob_table(logits: Tensor, token_ids: Tensor, num_top: int, num_ids: int) -> Tensor:
    """Look up the log-probabilities of one token, and of the most probable ones, in each row.

    Args:
        logits: [W, V] of any float dtype, unchanged since the model made them.
        token_ids: [W] int64, any ids below V.
        num_top: K, how many of the most probable ids to report.
        num_ids: Ids from here on are padding of the vocabulary: they are never among the most probable and count in no
            rank.

    Returns:
        [W, 2 + 2K] float64, as above. The rank is 1 plus the number of more probable ids.
    """
    logprobs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    chosen = logprobs.gather(1, token_ids[:, None])
    logprobs = logprobs[:, :num_ids]
    ranks = 1 + (logprobs > chosen).sum(dim=-1, keepdim=True)
    top_ids = most_probable_ids(logprobs, min(num_top, num_ids))
    return torch.cat([chosen.double(), ranks, top_ids, logprobs.gather(1, top_ids)], dim=1)


def most_probable_ids(scores: Tensor, count: int) -> Tensor:
    """The ids of the `count` largest scores, largest first and the lowest of equals first: [W, V] -> [W, count].

    `topk` leaves open which of several equal scores it takes, and in half precision many are equal. So that neither
    the batch nor `count` decides, the score's bits and the id are made one integer, of which no two are equal.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0.0 becomes 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # as integers, negative floats are in the opposite order
    last = scores.shape[1] - 1
    reversed_ids = torch.arange(last, -1, -1, device=scores.device)
    keys = (ordered.long() << 32) | reversed_ids
    return last - (keys.topk(count, dim=-1).values & 0xFFFFFFFF)


def read_table(table: Sequence[Sequence[float]], num_top: Sequence[int]) -> tuple[TokenLogprobs, ...]:
    """Take a table that is on the host apart.

    Args:
        table: The rows.
        num_top: How many of the most probable ids each row was asked for, at most K.
    """
    return tuple(_read_row(row, count) for row, count in zip(table, num_top, strict=True))


def _read_row(row: Sequence[float], num_top: int) -> TokenLogprobs:
    logprob, rank, *top = row
    ids, logprobs = top[: len(top) // 2], top[len(top) // 2 :]
    return TokenLogprobs(logprob, int(rank), tuple(zip(map(int, ids[:num_top]), logprobs, strict=False)))
